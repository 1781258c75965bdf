import { FlattenedSign } from "jose/jws/flattened/sign";
import { flattenedVerify } from "jose/jws/flattened/verify";
import { StoreError } from "../../base/errors.ts";
import { type WrappingKey, type WrappingKeys, jweHeader, keyNamed } from "./key-wrapping.ts";

const typ = "jwksd-store";

/**
 * Returns the string to store: a MAC, a line feed, and the document as JSON. The MAC is a JWS (`HS256`) with a detached
 * payload, computed with a key that is derived from the wrapping key. It covers every byte of the document.
 *
 * @see RFC 7515 appendix F; RFC 7797; RFC 5869
 */
export async function sealed({ id, macKey }: WrappingKey, document: string): Promise<string> {
  const { protected: header, signature } = await new FlattenedSign(new TextEncoder().encode(document))
    .setProtectedHeader({ alg: "HS256", typ, kid: id, b64: false, crit: ["b64"] })
    .sign(macKey);
  return `${header}..${signature}\n${document}`;
}

/** Returns the JSON part of a stored document without verifying the MAC. */
export function unsealed(text: string): string {
  return text.slice(text.indexOf("\n") + 1);
}

/**
 * Verifies a stored document's MAC.
 *
 * @returns the id of the wrapping key from which the MAC key was derived
 * @throws StoreError `ERR_STORE_NOT_AUTHENTIC`, `ERR_WRAPPING_KEY_MISSING`
 */
export async function verifySeal(keys: WrappingKeys, text: string): Promise<string> {
  const [mac = ""] = text.split("\n", 1);
  const [header = "", , signature = ""] = mac.split(".");
  const { kid } = jweHeader(mac) ?? {};
  if (typeof kid !== "string") throw notAuthentic("its MAC is missing or damaged");
  const key = keyNamed(kid, keys, "the store's MAC was computed with");
  const jws = { protected: header, payload: new TextEncoder().encode(unsealed(text)), signature };
  const verified = await flattenedVerify(jws, key.macKey, { algorithms: ["HS256"] }).catch(() => undefined);
  // The same key is also used for other types of MACs. @see RFC 8725 section 3.11
  if (verified?.protectedHeader?.typ === typ) return key.id;
  throw notAuthentic("it does not match its MAC");
}

function notAuthentic(cause: string): StoreError {
  return new StoreError(
    "ERR_STORE_NOT_AUTHENTIC",
    `the stored document is not authentic (${cause}): it is damaged or was changed without the wrapping key; restore the most recent backup, or see "A store that is not authentic" in docs/emergencies.md`,
  );
}
