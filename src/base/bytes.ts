/** `Uint8Array<ArrayBuffer>`, as Web Crypto takes it. Declarations cannot say so: before TypeScript 5.7, the type has no parameter. */
export type Bytes = ReturnType<Uint8ArrayConstructor["of"]>;

/** The bytes of a text in base64. @see RFC 4648 section 4 @throws DOMException for any other text */
export function fromBase64(text: string): Bytes {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}
