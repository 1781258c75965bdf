import type { Clock } from "../../base/clock.ts";
import { type JwksdError, SignerError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import type { Jwk } from "../../keys/jwk/public.ts";
import { type SignerLimits, boundSigner } from "../../keys/signer/bounded.ts";
import type { Signer } from "../../keys/signer/signer.ts";
import type { CheckedSigning } from "../../publish/keyset.ts";
import type { Claims, SignOptions } from "./sign-options.ts";
import { type ActiveKey, type SignedPayload, signPayload, signToken } from "./sign.ts";
import { createSignatures } from "./signatures.ts";
import { type SignInputOptions, signInput } from "./signing-input.ts";

/** The active key, for a library that writes the header of a token itself. */
export interface SigningKey {
  readonly kid: string;
  readonly alg: "ES256";
  /** As it is published. */
  readonly publicJwk: Jwk;
  /**
   * Signs the signing input of a JWT: header and payload in base64url, and a dot between them. The header must name this key and `ES256`,
   * and the claims must be ones that `provider.sign` would sign; neither may have a member twice. Gives 64 bytes: r, then s. The signer is
   * bounded, and the signature counted, as by `provider.sign`. A handle of managed keys may be used for `maxStaleSeconds` at most, and not
   * once its key is revoked: take it anew for each request.
   *
   * @throws TokenError `ERR_CLAIMS_INVALID`
   * @throws ConfigError `ERR_OPTION_UNKNOWN`
   * @throws SignerError `ERR_SIGNER_STALE` where this process may not sign with this key, now or when the signature is there; and those of
   * `provider.sign`
   * @see RFC 7515 section 5.1
   */
  sign(this: void, input: Uint8Array, options: SignInputOptions): Promise<Uint8Array>;
}

/** Signs the tokens of an issuer with the active key of the keyset that it took last. */
export interface TokenSigner {
  /** Takes a keyset, and forgets the signatures of all keys that are not in it. @throws ConfigError see `boundSigner` */
  take(signing: CheckedSigning): void;
  /** See `Provider`. */
  sign(this: void, claims: Claims, options: SignOptions): Promise<string>;
  /** @throws SignerError `ERR_SIGNER_STALE` if nothing may be signed now */
  checkMaySign(this: void): void;
  /** Signs a payload as it is, under the `typ` JWT; its claims are the caller's to check. @throws TokenError, SignerError as `sign` does */
  signPayload(this: void, payload: string): Promise<SignedPayload>;
  /** As `Provider` gives it. @param subject whose claims are signed: the issuer, or a client */
  signingKey(this: void, subject: string): SigningKey;
  metrics(this: void): readonly Metric[];
}

export interface TokenSignerOptions {
  readonly issuer: string;
  readonly clock: Clock;
  /** As it is now: a policy may change. */
  readonly maxTokenLifetimeSeconds: () => number;
  /** See `ProviderOptions`. */
  readonly permit?: ((kid: string) => () => void) | undefined;
  readonly signerLimits?: SignerLimits | undefined;
  /** Called when a signature failed, and not because its caller aborted it. */
  readonly onFailure?: (kid: string, error: JwksdError) => void;
}

/** The active key, and what signs with it; `undefined` in a process that only publishes. */
interface Active {
  readonly jwk: Jwk;
  readonly key: ActiveKey | undefined;
}

export function createTokenSigner(options: TokenSignerOptions, first?: CheckedSigning): TokenSigner {
  const { issuer, clock, maxTokenLifetimeSeconds, permit, signerLimits, onFailure = () => {} } = options;
  const signatures = createSignatures(clock, onFailure);
  const known = new WeakMap<Signer, ActiveKey>();
  let active = first && activeOf(first);

  /** Each signer is bounded once. */
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

  function checkIsActive({ kid }: Jwk): void {
    if (kid === current().jwk.kid) return;
    const message = `kid ${JSON.stringify(kid)} is no longer active; take the key anew for each request, with signingKey()`;
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
      } satisfies SigningKey);
    },
    metrics: () => signatures.metrics(),
  };
}

/**
 * The key is captured before any await, so that kid, signer and the times of the token belong together. A keyset that is taken meanwhile does
 * not matter; whether a manager's key may still sign does, because the signer may have taken longer than the key was anybody's to use.
 */
async function signWith<T>({ key }: Active, check: (() => void) | undefined, sign: (key: ActiveKey) => Promise<T>) {
  check?.();
  if (key === undefined) {
    throw new SignerError("ERR_SIGNER_PUBLISH_ONLY", "this process publishes public keys and holds no private key");
  }
  const signed = await sign(key);
  check?.();
  return signed;
}
