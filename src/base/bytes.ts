/** `Uint8Array<ArrayBuffer>`, as Web Crypto takes it. Declarations cannot say so: before TypeScript 5.7, the type has no parameter. */
export type Bytes = ReturnType<Uint8ArrayConstructor["of"]>;
