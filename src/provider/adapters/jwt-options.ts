import { type ConfigError, invalidOption } from "../../base/errors.ts";
import type { Jwk } from "../../keys/jwk/public.ts";
import type { Claims } from "../../sign/token/sign-options.ts";
import type { Provider } from "../types.ts";

/** What better-auth asks of a signature beside the claims. */
export interface SigningRequest {
  readonly signingKeyId?: string | undefined;
  readonly signingAlgorithm?: string | undefined;
}

/** A key as better-auth keeps keys. */
export interface StoredKey {
  readonly id: string;
  readonly alg: "ES256";
  readonly crv: "P-256";
  /** A JWK in JSON. */
  readonly publicKey: string;
  /** Empty: jwksd gives no private key away. */
  readonly privateKey: "";
  readonly createdAt: Date;
}

/** Options of `jwt()` of better-auth. */
export interface JwtSettings {
  readonly jwks: { readonly remoteUrl: string; readonly keyPairConfig: { readonly alg: "ES256" } };
  readonly jwt: {
    readonly issuer: string;
    readonly sign: (
      claims: Claims,
      header?: { readonly typ?: string; readonly cty?: string },
      request?: SigningRequest,
    ) => Promise<string>;
  };
  readonly adapter: { readonly getJwks: () => Promise<StoredKey[]> };
}

/**
 * Options for `jwt()` of better-auth, so that this provider signs all its tokens, and its metadata names the set of this provider. Give the
 * plugin other options beside them.
 *
 * `sign` is `provider.sign`, with the claims of better-auth, which have `iss`, `iat` and `exp`. It throws ConfigError `ERR_OPTION_INVALID`
 * where a resource asks for an algorithm other than ES256, or for a key of its own.
 *
 * @example
 * ```ts
 * const keys = jwtOptions(provider);
 * jwt({ ...keys, jwt: { ...keys.jwt, audience: "https://api.example.com" } });
 * ```
 */
export function jwtOptions(provider: Pick<Provider, "issuer" | "jwksUri" | "sign" | "jwkSet">): JwtSettings {
  return {
    jwks: { remoteUrl: provider.jwksUri, keyPairConfig: { alg: "ES256" } },
    jwt: {
      issuer: provider.issuer,
      async sign(claims, { typ, ...header } = {}, { signingKeyId, signingAlgorithm = "ES256" } = {}) {
        if (signingKeyId !== undefined)
          throw refused("signingKeyId", "the active key signs all tokens, so that keys can rotate");
        if (signingAlgorithm !== "ES256") throw refused("signingAlgorithm", "jwksd signs with ES256");
        return provider.sign(claims, { typ, header });
      },
    },
    // verifyJWT of better-auth knows only keys that are stored, and so would verify no token.
    adapter: {
      getJwks: async () => (await provider.jwkSet()).keys.filter(({ use }) => use === "sig").map(storedKey),
    },
  };
}

const storedKey = (key: Jwk): StoredKey => ({
  id: key.kid,
  alg: "ES256",
  crv: "P-256",
  publicKey: JSON.stringify(key),
  privateKey: "",
  createdAt: new Date(0),
});

function refused(option: string, reason: string): ConfigError {
  return invalidOption(`a resource of better-auth has ${option}, and ${reason}; take it out`);
}
