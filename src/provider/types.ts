import type { Metric } from "../base/metrics.ts";
import type { Optional } from "../base/options.ts";
import type { PublishedJwk } from "../keys/jwk/public-members.ts";
import type { ProviderHandlers } from "../publish/handlers.ts";
import type { EncryptionKeyset, Keyset } from "../publish/keyset-check.ts";
import type { Claims, SignOptions } from "../sign/token/sign-options.ts";
import type { ActiveSigningKey } from "../sign/token/token-signer.ts";
import type { KeyResolver, VerifiedToken, VerifyOptions } from "../verify/token/verify.ts";

/** New keysets for `provider.update`. An omitted keyset stays unchanged. */
export interface ProviderUpdate {
  /**
   * New signing keys, starting with the active one. Not allowed if the provider has the `keys` option, because that
   * option provides the signing keys.
   */
  readonly keyset?: Optional<Keyset>;
  /** New encryption keys. `[]` removes all of them, except for a key manager's own encryption keys. */
  readonly encryptionKeyset?: Optional<EncryptionKeyset>;
}

/** Serves an OpenID provider's JWK Set and discovery document. Also signs and verifies its tokens. */
export interface Provider extends ProviderHandlers {
  /** The issuer identifier. */
  readonly issuer: string;
  /** Absolute URL of the JWK Set, for the discovery document. */
  readonly jwksUri: string;
  /** Returns the JWK Set that is currently served. */
  jwkSet(this: void): Promise<{ readonly keys: readonly PublishedJwk[] }>;
  /**
   * Replaces one or both keysets atomically. If the update fails, the old keysets stay in use. Calls take effect in
   * order.
   *
   * @throws KeyMaterialError, for the same reasons as `createProvider`
   */
  update(this: void, change: ProviderUpdate): Promise<void>;
  /**
   * Signs claims with the active key and ES256. Sets `iss`, `iat` and `exp` if they are not given.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`
   * @throws ConfigError `ERR_OPTION_UNKNOWN`
   * @throws SignerError `ERR_SIGNER_THROTTLED`, `ERR_SIGNER_UNAVAILABLE`, `ERR_SIGNER_TIMEOUT`, `ERR_SIGNER_BUSY` (all
   * `retryable`), `ERR_SIGNER_UNAUTHORIZED`, `ERR_SIGNER_KEY_STATE`, `ERR_SIGNER_ABORTED`, `ERR_SIGNER_BAD_SIGNATURE`,
   * `ERR_SIGNER_PUBLISH_ONLY`, `ERR_SIGNER_DECOMMISSIONED`
   */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /**
   * Returns the active key, for a library that creates the token's header itself and needs only the signature. Call it
   * on every request, because the returned key stops signing once another key is active. With a key manager, the old
   * key keeps signing for at most `maxStaleSeconds`, so that requests that started with it can finish. If you can, use
   * `sign` instead, which selects the key and sets the token's times in one step.
   *
   * @param options `clientId` if the keys belong to a client; `iss` must then be that ID instead of the issuer
   */
  signingKey(this: void, options?: { readonly clientId?: string | undefined }): Promise<ActiveSigningKey>;
  /**
   * Finds the published key for a kid, for a guard in the same program: `createBearerGuard({ issuer: { issuer, keys:
   * provider.keys } })`. Nothing is cached, so a revoked key is rejected immediately.
   *
   * @throws TokenError `ERR_TOKEN_KID_UNKNOWN`
   */
  readonly keys: KeyResolver;
  /**
   * Verifies a token from this provider with the published key that has its kid. An unknown kid is an error; no other
   * key is tried. If a key with this kid was removed or revoked, an event reports the token.
   *
   * @throws TokenError, for the same reasons as `verify`
   */
  verify(
    this: void,
    token: string,
    options: Omit<VerifyOptions, "keys" | "issuer" | "algorithms" | "clock">,
  ): Promise<VerifiedToken>;
  /** Returns the counts of responses and signatures for a scrape. See docs/metrics.md. */
  metrics(this: void): readonly Metric[];
}
