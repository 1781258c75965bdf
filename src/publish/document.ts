import { sha256 } from "#crypto";
import { escapedUnit } from "../base/printable.ts";

/** A serialized JSON document and its ETag, made once per change. */
export interface Document {
  /**
   * The JSON in ASCII; other characters are escaped. So its length is its size in bytes, and `node:http` writes it together with the headers
   * in one step, which it does with no Buffer.
   */
  readonly text: string;
  /** Strong validator: the lowercase hex SHA-256 of the text, in double quotes. @see RFC 9110 section 8.8.3 */
  readonly etag: string;
}

/** Serializes a JSON value. Equal values have equal bytes and ETags on every replica. */
export async function makeDocument(value: unknown): Promise<Document> {
  const text = JSON.stringify(value).replace(/[\u0080-\uffff]/g, escapedUnit);
  const digest = await sha256(new TextEncoder().encode(text));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return Object.freeze({ text, etag: `"${hex}"` });
}
