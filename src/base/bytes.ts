/**
 * `Uint8Array<ArrayBuffer>`, which Web Crypto requires. Declarations cannot name it, because the type has no parameter
 * before TypeScript 5.7.
 */
export type Bytes = ReturnType<Uint8ArrayConstructor["of"]>;

/** Decodes base64. @see RFC 4648 section 4 @throws DOMException for any other string */
export function fromBase64(text: string): Bytes {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** Returns the bytes of a body. If there are more than `maxBytes`, returns `undefined` and reads no further. */
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
