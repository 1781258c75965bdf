/**
 * An issuer for tests, which creates valid and invalid tokens and serves its documents without using the network.
 *
 * @module jwksd/testing
 */
export { type JwksdErrorCode, ConfigError } from "../base/errors.ts";
export { type SenderConstrainedClient, createSenderConstrainedClient } from "./sender-constrained-client.ts";
export { type TestTokenOptions, type TokenFault, tokenFaults } from "./token-faults.ts";
export { type TestIssuer, type TestIssuerOptions, createTestIssuer } from "./test-issuer.ts";
export type { Listening } from "./test-server.ts";
