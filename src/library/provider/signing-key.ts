import type { Clock } from "../../base/clock.ts";
import type { Jwk } from "../../keys/keyset/keyset.ts";
import type { ActiveKey } from "../token/sign.ts";
import { type SignInputOptions, signInput } from "../token/signing-input.ts";

/** The active key, for a library that writes the header of a token itself. */
export interface SigningKey {
  readonly kid: string;
  readonly alg: "ES256";
  /** As it is published. */
  readonly publicJwk: Jwk;
  /**
   * Signs the signing input of a JWT: header and payload in base64url, and a dot between them. The header must name this key and `ES256`,
   * and the claims must be ones that `provider.sign` would sign; neither may have a member twice. Gives 64 bytes: r, then s. The signer is
   * guarded, and the signature counted, as by `provider.sign`. A handle of managed keys may be used for `maxStaleSeconds` at most, and not
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

interface Options {
  readonly active: ActiveKey;
  readonly publicJwk: Jwk;
  readonly issuer: string;
  /** @throws SignerError `ERR_SIGNER_STALE` */
  readonly check: () => void;
  readonly clock: Clock;
}

export function signingKey({ active, publicJwk, issuer, check, clock }: Options): SigningKey {
  const { kid } = active;
  return Object.freeze({
    kid,
    alg: "ES256",
    publicJwk,
    async sign(input, options) {
      check();
      const signature = await signInput(active, issuer, input, options, clock.now());
      // A token without times of its own would count from now, and the signer may have taken longer than the key was anybody's to use.
      check();
      return signature;
    },
  } satisfies SigningKey);
}
