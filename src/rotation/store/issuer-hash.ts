import { stringThat } from "../../base/options.ts";

export const issuerRule = stringThat(
  "a string of 1 to 2,048 characters",
  (value) => value.length <= 2_048 && value.isWellFormed(),
);

/**
 * Returns the key that identifies an issuer in a database: the issuer's SHA-256 hash in hexadecimal. The issuer is
 * hashed because databases limit the length of keys, and some ignore case.
 */
export async function issuerKey(issuer: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(issuer));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
