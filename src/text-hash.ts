import * as base64url from "jose/base64url";

/** The SHA-256 of a text, in base64url: 43 characters, however long the text is. */
export async function textHash(text: string): Promise<string> {
  return base64url.encode(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}
