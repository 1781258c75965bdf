import { isDate, timeText } from "../../base/format.ts";
import type { Key } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";

/**
 * Checks that a key is valid at a given time, using the members that OpenID Federation defines.
 *
 * @see OpenID Federation 1.0 section 8.7.2
 */
export function checkValidity({ jwk, name }: Key, at: number): Note[] {
  const { exp, nbf, revoked } = jwk;
  const [expiresAt, beginsAt] = [exp, nbf].map((seconds) => (typeof seconds === "number" ? seconds * 1000 : undefined));
  const found = [
    ...(expiresAt !== undefined && expiresAt <= at ? [`expired on ${dateText(expiresAt)}`] : []),
    ...(beginsAt !== undefined && beginsAt > at ? [`is valid from ${dateText(beginsAt)}`] : []),
    ...(revoked === undefined || revoked === null ? [] : ["is revoked"]),
  ];
  return found.length === 0 ? [] : [note("JWKS_KEY_EXPIRED", `${name} ${found.join(", ")}`)];
}

const dateText = (epochMs: number): string => (isDate(epochMs) ? timeText(epochMs) : `${epochMs / 1000}`);
