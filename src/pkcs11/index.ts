export { pkcs11Backend } from "./backend.ts";
export type { Pkcs11Options } from "./options.ts";
export type { PinSource } from "./pin.ts";
