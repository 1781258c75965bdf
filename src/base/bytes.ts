/**
 * `Uint8Array<ArrayBuffer>`, which Web Crypto requires. The declarations cannot name that type, because `Uint8Array`
 * takes no type parameter before TypeScript 5.7.
 */
export type Bytes = ReturnType<Uint8ArrayConstructor["of"]>;

/** Decodes base64. @see RFC 4648 section 4 @throws DOMException if the string is not base64 */
export function fromBase64(text: string): Bytes {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** Reads a body. If it is longer than `maxBytes`, returns `undefined` and stops reading. */
export async function bytesWithin(body: AsyncIterable<Bytes> | null, maxBytes: number): Promise<Bytes | undefined> {
  const chunks: Bytes[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.length;
    if (bytes > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}
