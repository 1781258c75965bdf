import { sha256 } from "#crypto";
import { escapedUnit } from "../base/printable.ts";

/** A serialized JSON document and its ETag, created once per change. */
export interface Document {
  /**
   * JSON in ASCII, with all other characters escaped. Its length is therefore its size in bytes, and `node:http` can
   * write it together with the headers, which it cannot do with a Buffer.
   */
  readonly text: string;
  /** Strong validator: SHA-256 of the text, in lowercase hex and double quotes. @see RFC 9110 section 8.8.3 */
  readonly etag: string;
}

/** Serializes a JSON value. Equal values result in the same bytes and ETag on every replica. */
export async function makeDocument(value: unknown): Promise<Document> {
  const text = JSON.stringify(value).replace(/[\u0080-\uffff]/g, escapedUnit);
  const digest = await sha256(new TextEncoder().encode(text));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return Object.freeze({ text, etag: `"${hex}"` });
}
