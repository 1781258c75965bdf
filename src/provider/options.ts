import type { Clock } from "../base/clock.ts";
import type { JwksdError } from "../base/errors.ts";
import {
  type Optional,
  type Rules,
  array,
  boolean,
  callback,
  checkOptions,
  clock,
  number,
  object,
  string,
  withMethods,
} from "../base/options.ts";
import type { SignerLimits } from "../keys/signer/bounded-signer.ts";
import type { Metadata } from "../publish/discovery.ts";
import type { EncryptionKeyset, Keyset } from "../publish/keyset-check.ts";
import type { KeyEnd, KeysetSource } from "./managed-keys.ts";

/** Paths of the provider's endpoints. */
export interface Endpoints {
  /** Absolute path of the JWK Set. It is appended to the issuer and the mount prefix. Default: `/jwks`. */
  readonly jwks?: Optional<string>;
}

/** An event from a provider. */
export type ProviderEvent =
  /** The provider has new keys. `kids` lists the signing keys' kids, starting with the active key. */
  | { readonly type: "updated"; readonly kids: readonly string[] }
  /** An update was rejected, so the keysets are unchanged. */
  | { readonly type: "refused"; readonly error: JwksdError }
  /**
   * `verify` rejected a token with the kid of a key that is no longer published, so the token is late or forged. The
   * signature was not verified, so any client can cause this event.
   */
  | { readonly type: "retired-kid-presented"; readonly kid: string; readonly end: KeyEnd }
  /** Signing failed for a reason other than an abort by the caller. */
  | { readonly type: "signature-failed"; readonly kid: string; readonly error: JwksdError };

/**
 * Options for `createProvider`. If an option is given several times, the last value wins. `null` and `undefined` mean
 * that it is not given.
 */
export interface ProviderOptions {
  /**
   * Issuer identifier. It must be an https URL without a query or fragment (for loopback hosts, http is accepted too).
   * Required unless `keys` is given.
   */
  readonly issuer?: Optional<string>;
  /** Path between the issuer and the endpoints, such as `/oidc`. Default: none. */
  readonly mountPrefix?: Optional<string>;
  /** Paths of the endpoints. Default: see {@link Endpoints}. */
  readonly endpoints?: Optional<Endpoints>;
  /**
   * Source of keys that change on their own, such as a key manager. The provider follows every change. Its issuer,
   * policy and rotation mode also come from this source. Replaces `issuer`, `keyset`, `jwksRotationActive` and
   * `maxTokenLifetimeSeconds`. Default: none.
   */
  readonly keys?: Optional<KeysetSource>;
  /** Signing keys, starting with the active one. Required unless `keys` is given. */
  readonly keyset?: Optional<Keyset>;
  /**
   * Public keys that relying parties encrypt to. If `keys` is given, these keys are published after the encryption
   * keys from `keys`. Default: none.
   */
  readonly encryptionKeyset?: Optional<EncryptionKeyset>;
  /**
   * Reports whether a rotation is in progress. Must be cheap, because it is called on every request for the JWK Set. If
   * it returns `true`, the response has `Cache-Control: public, max-age=300, must-revalidate`; if `false`, `public,
   * max-age=3600, stale-while-revalidate=3600`. Default: always `false`.
   */
  readonly jwksRotationActive?: Optional<() => boolean>;
  /**
   * Whether jwksd serves the discovery document. If `false`, serve your own document and set its `jwks_uri` to
   * `provider.jwksUri`. Default: `true`.
   */
  readonly discovery?: Optional<boolean>;
  /**
   * Additional members of the discovery document. Verifiers do not need them. Clients need `authorization_endpoint`,
   * `token_endpoint`, `response_types_supported` and `subject_types_supported`. If clients sign assertions or request
   * objects, set `token_endpoint_auth_signing_alg_values_supported` and `request_object_signing_alg_values_supported`
   * to `clientAlgorithms`. Default: none.
   */
  readonly metadata?: Optional<Metadata>;
  /**
   * Whether web pages from other origins may read the documents and their `ETag`, `Age` and `Date` headers. Default:
   * `true`.
   */
  readonly cors?: Optional<boolean>;
  /** Receives problems that do not stop the service. Default: prints the message with `console.warn`. */
  readonly onWarning?: Optional<(warning: JwksdError) => void>;
  /**
   * Receives events for updates, failures, and tokens whose key was removed or revoked. `metrics()` counts
   * failed signatures and these tokens. Default: none.
   */
  readonly onEvent?: Optional<(event: ProviderEvent) => void>;
  /**
   * Maximum `lifetimeSeconds` that `sign` accepts. Keep a retiring key published for at least this long. Default: no
   * limit.
   */
  readonly maxTokenLifetimeSeconds?: Optional<number>;
  /** Limits on calls to the active signer. Default: see {@link SignerLimits}. */
  readonly signerLimits?: Optional<SignerLimits>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Clock>;
}

const rules: Rules<ProviderOptions> = {
  keys: withMethods("subscribe", "permit", "endOf"),
  issuer: string,
  mountPrefix: string,
  endpoints: object,
  keyset: array,
  encryptionKeyset: array,
  jwksRotationActive: callback,
  discovery: boolean,
  metadata: object,
  cors: boolean,
  onWarning: callback,
  onEvent: callback,
  maxTokenLifetimeSeconds: number(1),
  signerLimits: object,
  clock,
};

/** Returns the `keyset` option. */
export const withKeyset = (keyset: Optional<Keyset>): ProviderOptions => ({ keyset });

/** Returns the `encryptionKeyset` option. */
export const withEncryptionKeyset = (encryptionKeyset: Optional<EncryptionKeyset>): ProviderOptions => ({
  encryptionKeyset,
});

/** Returns the `endpoints` option. */
export const withEndpoints = (endpoints: Optional<Endpoints>): ProviderOptions => ({ endpoints });

/**
 * Returns the `jwksRotationActive` option. `null` and `undefined` remove an earlier predicate, in which case the long
 * cache lifetime applies.
 */
export const withJWKSRotationActive = (predicate: Optional<() => boolean>): ProviderOptions => ({
  jwksRotationActive: predicate ?? (() => false),
});

/**
 * Merges options left to right and checks their names and types.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function mergeOptions(options: readonly Optional<ProviderOptions>[]) {
  const checked = options.map((option) => checkOptions<ProviderOptions>(option ?? {}, rules));
  return Object.assign({}, ...checked) as (typeof checked)[number];
}
