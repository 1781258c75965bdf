import { textThat } from "../../base/options.ts";

export const issuerRule = textThat(
  "a string of 1 to 2,048 characters",
  (value) => value.length <= 2_048 && value.isWellFormed(),
);

/**
 * The name of an issuer in a database: the SHA-256 in hexadecimal, because databases limit the length of names, and some compare them without
 * case.
 */
export async function issuerKey(issuer: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(issuer));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
