import { sha256, toBase64url } from "#crypto";

/** Returns a string's SHA-256 in base64url, which is always 43 characters long. */
export async function textHash(text: string): Promise<string> {
  return toBase64url(await sha256(new TextEncoder().encode(text)));
}
