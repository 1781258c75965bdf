import { sha256 } from "#crypto";
import type { CheckedKeysets } from "./keyset.ts";

/** One serialized JSON document with its validator, made once per change. */
export interface Document {
  /** The JSON, in ASCII only (other characters are escaped), so that its length is its size in bytes. */
  readonly text: string;
  /** Strong validator: `"`, lowercase hex SHA-256 of the text, `"`. @see the contract, section 4 */
  readonly etag: string;
  /** From when on the next one replaces it, in epoch milliseconds; `Infinity` for the last. */
  readonly until: number;
}

/** Serializes a JSON value: same value, same bytes, same ETag on every replica. */
export async function makeDocument(value: unknown, until = Infinity): Promise<Document> {
  const text = JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  const digest = await sha256(new TextEncoder().encode(text));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return Object.freeze({ text, etag: `"${hex}"`, until });
}

/**
 * The documents of a keyset from `now` on: one, and one more for each moment at which an encryption key's `notAfter` passes.
 * Signing keys first, then encryption keys, each in keyset order.
 */
export async function makeDocuments({ signing, encryption }: CheckedKeysets, now: number): Promise<Document[]> {
  const moments = new Set([
    now,
    ...encryption.map(({ notAfter }) => notAfter).filter((notAfter) => notAfter > now),
    Infinity,
  ]);
  const [first = now, ...rest] = [...moments].sort((a, b) => a - b);
  let from = first;
  return Promise.all(
    rest.map((until) => {
      const published = encryption.filter(({ notAfter }) => notAfter > from);
      from = until;
      return makeDocument({ keys: [...signing, ...published].map(({ jwk }) => jwk) }, until);
    }),
  );
}
