export { type Pkcs11Options, pkcs11Backend } from "./backend.ts";
export type { PinSource } from "./pin.ts";
