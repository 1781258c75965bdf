/**
 * `Uint8Array<ArrayBuffer>`, which Web Crypto asks for, by a name that the declarations can use: before TypeScript 5.7 the type has no
 * parameter.
 */
export type Bytes = ReturnType<Uint8ArrayConstructor["of"]>;
