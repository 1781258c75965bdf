import type { Auth } from "../../verify/bearer/requirements.ts";
import { RefusedCheck } from "./conventions.ts";

/** Limits of identity headers, in bytes. Together they fit into nginx's `proxy_buffer_size 16k` and into what backends accept. */
export const identityLimits = { value: 2_048, all: 8_192 } as const;

/** A header with one claim. */
export interface ClaimHeader {
  readonly claim: string;
  readonly header: string;
}

const title = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1).toLowerCase();

/** Returns the header for a claim: `X-Jwksd-Claim-Tenant-Id` for `tenant_id`. */
export const claimHeader = (claim: string): ClaimHeader => ({
  claim,
  header: ["X-Jwksd-Claim", ...(claim.match(/[a-z\d]+/gi) ?? []).map(title)].join("-"),
});

/** Returns the names of all identity headers. */
export const identityHeaderNames = (claims: readonly ClaimHeader[]): readonly string[] => [
  "X-Jwksd-Issuer",
  "X-Jwksd-Subject",
  "X-Jwksd-Client",
  "X-Jwksd-Scope",
  ...claims.map(({ header }) => header),
];

/**
 * Returns the identity headers of a request, as name, value, name, value.
 *
 * @param auth `undefined` for a request without a token
 * @param sendsEmpty whether headers without a value are included
 * @throws RefusedCheck if a value is too long to be passed on whole
 */
export function identityHeaders(
  auth: Auth | undefined,
  claims: readonly ClaimHeader[],
  sendsEmpty: boolean,
): readonly string[] {
  const { iss, sub } = auth?.claims ?? {};
  const own = new Map(Object.entries(auth?.claims ?? {}));
  const values = [iss, sub, auth?.clientId, auth?.scopes.join(" "), ...claims.map(({ claim }) => own.get(claim))];
  let bytes = 0;
  return identityHeaderNames(claims).flatMap((name, index) => {
    const text = encoded(values[index]);
    bytes += text.length;
    if (text.length > identityLimits.value || bytes > identityLimits.all)
      throw new RefusedCheck(403, "identity", `the token's ${name} is too long to be passed on`);
    return text === "" && !sendsEmpty ? [] : [name, text];
  });
}

/** Returns a claim in visible ASCII, with everything else percent-encoded. @throws RefusedCheck */
function encoded(value: unknown): string {
  if (value === undefined || value === null) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (!text.isWellFormed()) throw new RefusedCheck(403, "identity", "a claim of the token is not valid Unicode");
  return text.replace(/[^!-$&-~]+/g, (other) => encodeURIComponent(other));
}
