/**
 * Contract tests for custom stores and signers, to be run with `node:test`.
 *
 * @module jwksd/testing/adapters
 */
export type { Register } from "../rotation/store/register.ts";
export type { Signer } from "../keys/signer/signer.ts";
export { checkSigner } from "./check-signer.ts";
export { checkRegister } from "./check-register.ts";
