import { sha256, toBase64url } from "#crypto";

/** Returns the SHA-256 of a string in base64url: 43 characters, whatever the string's length. */
export async function textHash(text: string): Promise<string> {
  return toBase64url(await sha256(new TextEncoder().encode(text)));
}
