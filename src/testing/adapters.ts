/**
 * Contract tests for custom stores and signers, run with `node:test`.
 *
 * @module jwksd/testing/adapters
 */
export type { Register } from "../rotation/store/register.ts";
export type { Signer } from "../keys/signer/signer.ts";
export { type CheckSignerOptions, type SignerUnderTest, checkSigner } from "./signer.ts";
export { type Faults, type RegisterUnderTest, checkRegister } from "./register.ts";
