import { sha256, toBase64url } from "#crypto";

/** The SHA-256 of a text, in base64url: 43 characters, however long the text is. */
export async function textHash(text: string): Promise<string> {
  return toBase64url(await sha256(new TextEncoder().encode(text)));
}
