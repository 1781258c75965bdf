import type { Clock } from "../../base/clock.ts";
import { type JwksdError, SignerError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import type { PublishedJwk } from "../../keys/jwk/public-members.ts";
import { type SignerLimits, boundSigner } from "../../keys/signer/bounded-signer.ts";
import type { Signer } from "../../keys/signer/signer.ts";
import type { CheckedSigning } from "../../publish/keyset-check.ts";
import { type SignInputOptions, signInput } from "./sign-input.ts";
import type { Claims, SignOptions } from "./sign-options.ts";
import { type ActiveKey, type SignedPayload, signPayload, signToken } from "./sign.ts";
import { createSignatures } from "./signature-metrics.ts";

/** The active key, for a library that creates a token's header itself. */
export interface ActiveSigningKey {
  readonly kid: string;
  readonly alg: "ES256";
  /** Public key, as published. */
  readonly publicJwk: PublishedJwk;
  /**
   * Signs the signing input of a JWT: the header and the payload in base64url, joined by a dot. The header must name
   * this key and `ES256`, and the claims must be ones that `provider.sign` allows. Neither may contain a duplicate
   * member. Returns 64 bytes (r followed by s). The signer's limits apply and the signature is counted, as with
   * `provider.sign`. A handle for a managed key works for at most `maxStaleSeconds`, and stops working when its key is
   * revoked, so get a new handle for each request.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`
   * @throws ConfigError `ERR_OPTION_UNKNOWN`
   * @throws SignerError `ERR_SIGNER_STALE` if this process must not sign with this key, either when called or when the
   * signature is complete, as well as the same errors as `provider.sign`
   * @see RFC 7515 section 5.1
   */
  sign(this: void, input: Uint8Array, options: SignInputOptions): Promise<Uint8Array>;
}

/** Signs an issuer's tokens with the active key of the current keyset. */
export interface TokenSigner {
  /**
   * Sets the current keyset, and discards the statistics of all keys that are not in it.
   *
   * @throws ConfigError, for the same reasons as `boundSigner`
   */
  take(signing: CheckedSigning): void;
  /** Signs claims. @see `Provider` */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /** Checks that this process may currently sign. @throws SignerError `ERR_SIGNER_STALE` */
  checkMaySign(this: void): void;
  /**
   * Signs a payload as is, with a `typ` of JWT. The caller must check the claims.
   *
   * @throws TokenError, SignerError, for the same reasons as `sign`
   */
  signPayload(this: void, payload: string): Promise<SignedPayload>;
  /** Returns the active key. @see `Provider` @param subject issuer or client whose claims the key signs */
  signingKey(this: void, subject: string): ActiveSigningKey;
  metrics(this: void): readonly Metric[];
}

export interface TokenSignerOptions {
  readonly issuer: string;
  readonly clock: Clock;
  /** Returns the current maximum token lifetime, in seconds. It is a function because the policy can change. */
  readonly maxTokenLifetimeSeconds: () => number;
  /** See `ProviderOptions`. */
  readonly permit?: ((kid: string) => () => void) | undefined;
  readonly signerLimits?: SignerLimits | undefined;
  /** Called when signing fails, unless the caller aborted it. */
  readonly onFailure?: (kid: string, error: JwksdError) => void;
}

/** The active key and its signer, which is `undefined` in a process that only publishes keys. */
interface Active {
  readonly jwk: PublishedJwk;
  readonly key: ActiveKey | undefined;
}

export function createTokenSigner(options: TokenSignerOptions, first?: CheckedSigning): TokenSigner {
  const { issuer, clock, maxTokenLifetimeSeconds, permit, signerLimits, onFailure = () => {} } = options;
  const signatures = createSignatures(clock, onFailure);
  const known = new WeakMap<Signer, ActiveKey>();
  let active = first && activeOf(first);

  /** Returns the active key of a keyset. Each signer is wrapped only once, to add limits. */
  function activeOf({ entries: [{ jwk, publicKey }], signer }: CheckedSigning): Active {
    if (signer === undefined) return { jwk, key: undefined };
    const { kid } = jwk;
    const before = known.get(signer);
    if (before?.kid === kid) return { jwk, key: before };
    const bounded = boundSigner(signer, publicKey, `kid ${JSON.stringify(kid)}`, signerLimits, clock);
    const key: ActiveKey = {
      kid,
      get maxLifetimeSeconds() {
        return maxTokenLifetimeSeconds();
      },
      sign: signatures.measured(kid, bounded),
      headers: new Map(),
    };
    known.set(signer, key);
    return { jwk, key };
  }

  const signNow = async <T>(sign: (key: ActiveKey) => Promise<T>): Promise<T> =>
    signWith(current(), permit?.(current().jwk.kid), sign);

  function current(): Active {
    if (active === undefined) throw new SignerError("ERR_SIGNER_STALE", "no keys have been read yet");
    return active;
  }

  function checkIsActive({ kid }: PublishedJwk): void {
    if (kid === current().jwk.kid) return;
    const message = `kid ${JSON.stringify(kid)} is no longer active; call signingKey() again for each request`;
    throw new SignerError("ERR_SIGNER_STALE", message);
  }

  return {
    take(signing) {
      active = activeOf(signing);
      signatures.keep(signing.entries.map(({ jwk }) => jwk.kid));
    },
    sign: (claims, options) => signNow((key) => signToken(key, issuer, claims, options, clock.now())),
    checkMaySign: () => permit?.(current().jwk.kid)(),
    signPayload: (payload) => signNow((key) => signPayload(key, payload)),
    signingKey(subject) {
      const { jwk, key } = current();
      const check = permit?.(jwk.kid) ?? (() => checkIsActive(jwk));
      return Object.freeze({
        kid: jwk.kid,
        alg: "ES256",
        publicJwk: jwk,
        sign: (input, options) =>
          signWith({ jwk, key }, check, (key) => signInput(key, subject, input, options, clock.now())),
      } satisfies ActiveSigningKey);
    },
    metrics: () => signatures.metrics(),
  };
}

/**
 * Signs with a key that was captured before any await, so the kid, the signer and the token's times match. A new keyset
 * does not affect a signature in progress. However, because the signer may have taken too long, a manager's key must
 * still be allowed to sign after the signature has been created.
 */
async function signWith<T>({ key }: Active, check: (() => void) | undefined, sign: (key: ActiveKey) => Promise<T>) {
  check?.();
  if (key === undefined) {
    throw new SignerError("ERR_SIGNER_PUBLISH_ONLY", "this process only publishes public keys and has no private key");
  }
  const result = await sign(key);
  check?.();
  return result;
}
