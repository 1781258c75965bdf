/**
 * The provider: a JWK Set and a discovery document, tokens signed and verified, and what clients sign.
 *
 * @module jwksd
 */

export type { Client } from "./client/client-keys.ts";
export { type ClientVerifier, type ClientVerifierOptions, createClientVerifier } from "./client/client-tokens.ts";
export type { ClientEvent, TokenKind } from "./client/events.ts";
export { type SetIfAbsent, memoryReplayStore } from "./client/replay.ts";
export { type Clock, systemClock } from "./clock.ts";
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
} from "./errors.ts";
export type { EcPublicJwk, PublicJwk, RsaPublicJwk } from "./jwk/public.ts";
export type { CryptoKeyPair, KeyInput, KeyObjectLike } from "./jwk/read.ts";
export type { NodeRequest, NodeResponse } from "./http/node.ts";
export type { EncryptionAlg, EncryptionEntry, EncryptionKeyset, Keyset, SigningEntry } from "./keyset/keyset.ts";
export {
  type Endpoints,
  type Metadata,
  type ProviderEvent,
  type ProviderOptions,
  withEncryptionKeyset,
  withEndpoints,
  withJWKSRotationActive,
  withKeyset,
} from "./provider/options.ts";
export { type KeysetUpdate, type Provider, createProvider } from "./provider/provider.ts";
export type { SignerLimits } from "./signer/guard.ts";
export { localSigner } from "./signer/local.ts";
export type { ExternalSigner, SignInput, Signer, SignerBackend } from "./signer/signer.ts";
export type { Metric, MetricValue } from "./metrics.ts";
export { clientAlgorithms } from "./token/client-algorithms.ts";
export type { Claims, SignOptions } from "./token/sign.ts";
export { type KeySource, type VerifiedToken, type VerifyOptions, verify } from "./token/verify.ts";
export { errorTable } from "./error-table.ts";
