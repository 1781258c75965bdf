/**
 * Contract tests for custom stores and signers, to be run with `node:test`.
 *
 * @module jwksd/testing/adapters
 */
export type { Register } from "../rotation/store/register.ts";
export type { Signer } from "../keys/signer/signer.ts";
export { defineSignerTests } from "./signer-tests.ts";
export { defineRegisterTests } from "./register-tests.ts";
