/**
 * The provider: a JWK Set and a discovery document, tokens signed and verified, and what clients sign.
 *
 * @module jwksd
 */

export type { Client } from "./library/client/client-keys.ts";
export {
  type ClientAssertionOptions,
  type ClientSigner,
  type RequestObjectOptions,
  createClientAssertion,
  createRequestObject,
} from "./library/client/client-signing.ts";
export {
  type ClientVerifier,
  type ClientVerifierOptions,
  createClientVerifier,
} from "./library/client/client-tokens.ts";
export type { ClientEvent, TokenKind } from "./library/client/events.ts";
export { type ReplayStoreOptions, type SetIfAbsent, memoryReplayStore } from "./library/client/replay.ts";
export { type Clock, systemClock } from "./base/clock.ts";
export {
  ConfigError,
  type CodeOf,
  type ErrorCode,
  FetchError,
  InternalError,
  JwksdError,
  KeyMaterialError,
  ServiceError,
  SignerError,
  StateError,
  StoreError,
  TokenError,
} from "./base/errors.ts";
export type { EcPublicJwk, Jwk, PublicJwk, RsaPublicJwk } from "./keys/jwk/public.ts";
export type { CryptoKeyPair, KeyInput, KeyObjectLike } from "./keys/jwk/read.ts";
export type { NodeRequest, NodeResponse } from "./library/http/node.ts";
export type { EncryptionAlg, EncryptionEntry, EncryptionKeyset, Keyset, SigningEntry } from "./keys/keyset/keyset.ts";
export {
  type Endpoints,
  type Metadata,
  type ProviderEvent,
  type ProviderOptions,
  withEncryptionKeyset,
  withEndpoints,
  withJWKSRotationActive,
  withKeyset,
} from "./library/provider/options.ts";
export { createProvider } from "./library/provider/provider.ts";
export type { KeysetUpdate, Provider } from "./library/provider/types.ts";
export type { KeyEnd } from "./library/provider/retired-kids.ts";
export type { SigningKey } from "./library/provider/token-signer.ts";
export type { SignerLimits } from "./keys/signer/bounded.ts";
export { localSigner } from "./keys/signer/local.ts";
export type { SignInput, Signer } from "./keys/signer/signer.ts";
export type { Metric, MetricValue } from "./base/metrics.ts";
export { clientAlgorithms } from "./library/token/client-algorithms.ts";
export type { Claims, SignOptions } from "./library/token/sign-options.ts";
export type { SignInputOptions } from "./library/token/signing-input.ts";
export { type KeySource, type VerifiedToken, type VerifyOptions, verify } from "./library/token/verify.ts";
export { errorTable } from "./base/error-table.ts";
