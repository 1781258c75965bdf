/**
 * What every store and every signer must pass, as tests of `node:test`: for adapters outside of jwksd.
 *
 * @module jwksd/testing/adapters
 */
export type { Register } from "../rotation/store/register.ts";
export type { Signer } from "../keys/signer/signer.ts";
export { type CheckSignerOptions, type SignerUnderTest, checkSigner } from "./signer.ts";
export { type Faults, type RegisterUnderTest, checkRegister } from "./register.ts";
