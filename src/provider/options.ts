import type { Clock } from "../clock.ts";
import type { JwksdError } from "../errors.ts";
import { type Rules, array, boolean, callback, checkOptions, clock, number, object, string } from "../options.ts";
import type { SignerLimits } from "../signer/guard.ts";
import type { EncryptionKeyset, Keyset } from "../keyset/keyset.ts";

/** Paths of the provider's endpoints. */
export interface Endpoints {
  /** Absolute path of the JWK Set below issuer and mount prefix. Default: `/jwks`. */
  readonly jwks?: string | null | undefined;
}

/** Discovery metadata of the provider's own, published beside what jwksd sets. @see OpenID Connect Discovery 1.0 section 3 */
export type Metadata = Readonly<Record<string, unknown>>;

/** Options of `createProvider`. Given several times, the last one wins; `null` and `undefined` mean not given. */
export interface ProviderOptions {
  /** Issuer identifier: an https URL without query or fragment (http is accepted for loopback hosts). Required. */
  readonly issuer?: string | null | undefined;
  /** Path between the issuer and the endpoints, such as `/oidc`. Default: none. */
  readonly mountPrefix?: string | null | undefined;
  readonly endpoints?: Endpoints | null | undefined;
  /** Signing keys, the active one first. Required. */
  readonly keyset?: Keyset | null | undefined;
  /** Public keys to which relying parties encrypt. Default: none. */
  readonly encryptionKeyset?: EncryptionKeyset | null | undefined;
  /** Called once for each request of the JWK Set: `true` sends the rotation Cache-Control. Default: always `false`. */
  readonly jwksRotationActive?: (() => boolean) | null | undefined;
  /**
   * Whether the discovery document is served. `false` leaves it to the provider, whose own one then names `jwksUri`.
   * Default: `true`.
   */
  readonly discovery?: boolean | null | undefined;
  /**
   * More members of the discovery document. Without `authorization_endpoint`, `token_endpoint`, `response_types_supported` and
   * `subject_types_supported` it is partial: enough for verifiers, not for clients. Where clients sign assertions or request objects,
   * `clientAlgorithms` is the value of `token_endpoint_auth_signing_alg_values_supported` and
   * `request_object_signing_alg_values_supported`. Default: none.
   */
  readonly metadata?: Metadata | null | undefined;
  /** Whether 200 and 304 carry `Access-Control-Allow-Origin: *`, and expose `ETag`, `Age` and `Date`. Default: `true`. */
  readonly cors?: boolean | null | undefined;
  /** Hears what went wrong while serving went on. Default: `console.warn` of the message. */
  readonly onWarning?: ((warning: JwksdError) => void) | null | undefined;
  /** The longest `lifetimeSeconds` that `sign` accepts: a retiring key is published only for so long. Default: none. */
  readonly maxTokenLifetimeSeconds?: number | null | undefined;
  /** Bounds of what is asked of the active signer. */
  readonly signerLimits?: SignerLimits | null | undefined;
  /** Default: the clock of the machine. */
  readonly clock?: Clock | null | undefined;
}

const rules: Rules<ProviderOptions> = {
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
  maxTokenLifetimeSeconds: number(1),
  signerLimits: object,
  clock,
};

export type MergedOptions = { readonly [Name in keyof ProviderOptions]: NonNullable<ProviderOptions[Name]> };

/** The option `keyset`. @see the contract, section 2 */
export const withKeyset = (keyset: Keyset | null | undefined): ProviderOptions => ({ keyset });

/** The option `encryptionKeyset`. @see the contract, section 2, rule 2 */
export const withEncryptionKeyset = (encryptionKeyset: EncryptionKeyset | null | undefined): ProviderOptions => ({
  encryptionKeyset,
});

/** The option `endpoints`. @see the contract, section 1, point 6 */
export const withEndpoints = (endpoints: Endpoints | null | undefined): ProviderOptions => ({ endpoints });

/**
 * The option `jwksRotationActive`. `null` and `undefined` mean the long cache, also after an earlier predicate.
 *
 * @see the contract, section 4 (Rotation cache mode, 4 and 5)
 */
export const withJWKSRotationActive = (predicate: (() => boolean) | null | undefined): ProviderOptions => ({
  jwksRotationActive: predicate ?? (() => false),
});

/**
 * Merges left to right, and checks names and types.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function mergeOptions(options: readonly (ProviderOptions | null | undefined)[]): MergedOptions {
  const merged: Record<string, unknown> = {};
  for (const option of options) {
    checkOptions(option ?? {}, rules);
    for (const [name, value] of Object.entries(option ?? {})) {
      if (value !== null && value !== undefined) merged[name] = value;
    }
  }
  return merged;
}
