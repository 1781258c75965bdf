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
import type { SignerLimits } from "../keys/signer/bounded.ts";
import type { Metadata } from "../publish/discovery.ts";
import type { EncryptionKeyset, Keyset } from "../publish/keyset.ts";
import type { ManagedKeys } from "./managed-keys.ts";
import type { KeyEnd } from "./retired-kids.ts";

/** Paths of the provider's endpoints. */
export interface Endpoints {
  /** Absolute path of the JWK Set below issuer and mount prefix. Default: `/jwks`. */
  readonly jwks?: Optional<string>;
}

/** What happened to a provider. */
export type ProviderEvent =
  /** The provider has new keys. `kids` are those of the signing keys, the active one first. */
  | { readonly type: "updated"; readonly kids: readonly string[] }
  /** An update was refused; the keysets stay as they were. */
  | { readonly type: "refused"; readonly error: JwksdError }
  /**
   * `verify` refused a token with the kid of a key that is no longer published: it came late, or somebody forged it. Anybody can send such a
   * token; its signature was not looked at.
   */
  | { readonly type: "retired-kid-presented"; readonly kid: string; readonly end: KeyEnd }
  /** A signature failed, and not because its caller aborted it. */
  | { readonly type: "signature-failed"; readonly kid: string; readonly error: JwksdError };

/** Options of `createProvider`. Of an option that is given several times, the last value counts. `null` and `undefined` mean not given. */
export interface ProviderOptions {
  /** Issuer identifier: an https URL without query or fragment (http is accepted for loopback hosts). Required, unless `keys` is given. */
  readonly issuer?: Optional<string>;
  /** Path between the issuer and the endpoints, such as `/oidc`. Default: none. */
  readonly mountPrefix?: Optional<string>;
  /** Paths of the endpoints. Default: those of {@link Endpoints}. */
  readonly endpoints?: Optional<Endpoints>;
  /**
   * Keys that change by themselves, such as a key manager. The provider follows every change, and takes their issuer, policy and
   * rotation mode. Replaces `issuer`, `keyset`, `encryptionKeyset`, `jwksRotationActive` and `maxTokenLifetimeSeconds`. Default: none.
   */
  readonly keys?: Optional<ManagedKeys>;
  /** Signing keys, the active one first. Required, unless `keys` is given. */
  readonly keyset?: Optional<Keyset>;
  /** Public keys to which relying parties encrypt. Default: none. */
  readonly encryptionKeyset?: Optional<EncryptionKeyset>;
  /**
   * Called for each request of the JWK Set, so it must be cheap. `true` means a rotation: `Cache-Control: public, max-age=300,
   * must-revalidate`. `false` means `public, max-age=3600, stale-while-revalidate=3600`. Default: always `false`.
   */
  readonly jwksRotationActive?: Optional<() => boolean>;
  /**
   * Whether jwksd serves the discovery document. With `false`, serve your own and put `provider.jwksUri` into it. Default: `true`.
   */
  readonly discovery?: Optional<boolean>;
  /**
   * More members of the discovery document. Verifiers need none. Clients need `authorization_endpoint`, `token_endpoint`,
   * `response_types_supported` and `subject_types_supported`. Where clients sign assertions or request objects, set
   * `token_endpoint_auth_signing_alg_values_supported` and `request_object_signing_alg_values_supported` to `clientAlgorithms`.
   * Default: none.
   */
  readonly metadata?: Optional<Metadata>;
  /** Whether browsers of other origins may read the documents, and `ETag`, `Age` and `Date`. Default: `true`. */
  readonly cors?: Optional<boolean>;
  /** Gets problems that do not stop the service. Default: `console.warn` of the message. */
  readonly onWarning?: Optional<(warning: JwksdError) => void>;
  /** Gets updates, failures, and reports of tokens whose key was removed or revoked. Numbers are in `metrics()`. Default: nobody listens. */
  readonly onEvent?: Optional<(event: ProviderEvent) => void>;
  /** Longest `lifetimeSeconds` that `sign` accepts. Keep a retiring key published for at least this long. Default: no limit. */
  readonly maxTokenLifetimeSeconds?: Optional<number>;
  /**
   * Called with the kid when a signature or a `signingKey` is asked for. Gives a check that is called before the signature, when `iat` is taken,
   * and again after it. The check throws if this process may not sign with that key. Do not combine with `keys`. Default: only a `signingKey`
   * throws, once its key is not the active one.
   */
  readonly permit?: Optional<(kid: string) => () => void>;
  /**
   * Called by `verify` with each kid that is not published. Says how the key with that kid ended, if there was one. Do not combine
   * with `keys`. Default: keys that `update` took out of the keyset count as removed.
   */
  readonly retiredKid?: Optional<(kid: string) => KeyEnd | undefined>;
  /** Limits for calls of the active signer. Default: those of {@link SignerLimits}. */
  readonly signerLimits?: Optional<SignerLimits>;
  /** Tells the time. Default: the clock of the machine. */
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
  permit: callback,
  retiredKid: callback,
  signerLimits: object,
  clock,
};

/** The option `keyset`. */
export const withKeyset = (keyset: Optional<Keyset>): ProviderOptions => ({ keyset });

/** The option `encryptionKeyset`. */
export const withEncryptionKeyset = (encryptionKeyset: Optional<EncryptionKeyset>): ProviderOptions => ({
  encryptionKeyset,
});

/** The option `endpoints`. */
export const withEndpoints = (endpoints: Optional<Endpoints>): ProviderOptions => ({ endpoints });

/** The option `jwksRotationActive`. `null` and `undefined` mean the long cache, and take an earlier predicate back. */
export const withJWKSRotationActive = (predicate: Optional<() => boolean>): ProviderOptions => ({
  jwksRotationActive: predicate ?? (() => false),
});

/**
 * Merges left to right, and checks names and types.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function mergeOptions(options: readonly Optional<ProviderOptions>[]) {
  const checked = options.map((option) => checkOptions<ProviderOptions>(option ?? {}, rules));
  return Object.assign({}, ...checked) as (typeof checked)[number];
}
