/**
 * The provider. Publishes a JWK Set and a discovery document, signs and verifies tokens, and verifies tokens signed by
 * clients.
 *
 * @module jwksd
 */

export type { ClientKeyMetadata } from "./verify/client/client-keys.ts";
export {
  type ClientDocumentState,
  type ClientDocuments,
  type ClientDocumentsOptions,
  type ResolvedClient,
  createClientDocuments,
} from "./verify/client/client-documents.ts";
export { isRegisteredRedirectUri } from "./verify/client/redirect-uri.ts";
export {
  type ClientAssertionOptions,
  type RequestObjectOptions,
  createClientAssertion,
  createRequestObject,
} from "./sign/token/client-assertions.ts";
export {
  type ClientVerifier,
  type ClientVerifierOptions,
  createClientVerifier,
} from "./verify/client/client-verifier.ts";
export type { ClientVerifierEvent } from "./verify/client/events.ts";
export { type SetIfAbsent, memoryReplayStore } from "./verify/client/replay-store.ts";
export type { Clock } from "./base/clock.ts";
export {
  ClientDocumentError,
  ConfigError,
  type JwksdErrorCode,
  FetchError,
  InternalError,
  JwksdError,
  KeyMaterialError,
  IoError,
  SignerError,
  RotationError,
  StoreError,
  TokenError,
} from "./base/errors.ts";
export type { PublishedJwk, PublicJwk } from "./keys/jwk/public-members.ts";
export type { KeyInput } from "./keys/jwk/read-key.ts";
export type { NodeRequest, NodeResponse } from "./publish/node-response.ts";
export type { FetchHandler } from "./publish/web-response.ts";
export type { ProviderHandlers } from "./publish/handlers.ts";
export type { EncryptionEntry, EncryptionKeyset, Keyset, SigningEntry } from "./publish/keyset-check.ts";
export {
  type Endpoints,
  type ProviderEvent,
  type ProviderOptions,
  withEncryptionKeyset,
  withEndpoints,
  withJWKSRotationActive,
  withKeyset,
} from "./provider/options.ts";
export { createProvider } from "./provider/create-provider.ts";
export type { ProviderUpdate, Provider } from "./provider/types.ts";
export type { ActiveSigningKey } from "./sign/token/token-signer.ts";
export type { SignerLimits } from "./keys/signer/bounded-signer.ts";
export { localSigner } from "./keys/signer/local-signer.ts";
export type { SignInput, Signer } from "./keys/signer/signer.ts";
export type { Metric } from "./base/metrics.ts";
export { clientAlgorithms } from "./verify/client/client-algorithms.ts";
export type { Claims, SignOptions } from "./sign/token/sign-options.ts";
export {
  type KeyResolver,
  type VerifiedClaims,
  type VerifiedToken,
  type VerifyOptions,
  verify,
} from "./verify/token/verify.ts";
