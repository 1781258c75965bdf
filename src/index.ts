export { type Clock, systemClock } from "./clock.ts";
export {
  ConfigError,
  type ErrorCode,
  JwksdError,
  KeyMaterialError,
  ServiceError,
  SignerError,
  errorCodes,
} from "./errors.ts";
export type { EcPublicJwk, PublicJwk, RsaPublicJwk } from "./jwk/public.ts";
export type { KeyInput } from "./jwk/read.ts";
export type { EncryptionAlg, EncryptionEntry, EncryptionKeyset, Keyset, SigningEntry } from "./keyset/keyset.ts";
export {
  type Endpoints,
  type Metadata,
  type ProviderOptions,
  withEncryptionKeyset,
  withEndpoints,
  withJWKSRotationActive,
  withKeyset,
} from "./provider/options.ts";
export { type KeysetUpdate, type Provider, createProvider } from "./provider/provider.ts";
export { localSigner } from "./signer/local.ts";
export type { SignInput, Signer } from "./signer/signer.ts";
