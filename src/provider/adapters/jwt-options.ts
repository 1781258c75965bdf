import { type ConfigError, invalidOption } from "../../base/errors.ts";
import type { PublishedJwk } from "../../keys/jwk/public-members.ts";
import type { Claims } from "../../sign/token/sign-options.ts";
import type { Provider } from "../types.ts";

/** better-auth's requirements for a signature, apart from the claims. */
export interface SigningRequest {
  readonly signingKeyId?: string | undefined;
  readonly signingAlgorithm?: string | undefined;
}

/** A key in better-auth's storage format. */
export interface StoredKey {
  readonly id: string;
  readonly alg: "ES256";
  readonly crv: "P-256";
  /** JWK as JSON. */
  readonly publicKey: string;
  /** Always empty, because jwksd does not disclose private keys. */
  readonly privateKey: "";
  readonly createdAt: Date;
}

/** Options for better-auth's `jwt()` plugin. */
export interface JwtPluginOptions {
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
 * Returns options for better-auth's `jwt()` plugin. With these options, this provider signs all of the plugin's tokens,
 * and the metadata points to this provider's JWK Set. Add the plugin's other options to them.
 *
 * `sign` calls `provider.sign` with better-auth's claims, which include `iss`, `iat` and `exp`. It throws ConfigError
 * `ERR_OPTION_INVALID` if a resource requires its own key or an algorithm other than ES256.
 *
 * @example
 * ```ts
 * const keys = jwtOptions(provider);
 * jwt({ ...keys, jwt: { ...keys.jwt, audience: "https://api.example.com" } });
 * ```
 */
export function jwtOptions(provider: Pick<Provider, "issuer" | "jwksUri" | "sign" | "jwkSet">): JwtPluginOptions {
  return {
    jwks: { remoteUrl: provider.jwksUri, keyPairConfig: { alg: "ES256" } },
    jwt: {
      issuer: provider.issuer,
      async sign(claims, { typ, ...header } = {}, { signingKeyId, signingAlgorithm = "ES256" } = {}) {
        if (signingKeyId !== undefined)
          throw unsupported("signingKeyId", "all tokens are signed with the active key, because keys rotate");
        if (signingAlgorithm !== "ES256") throw unsupported("signingAlgorithm", "jwksd signs with ES256");
        return provider.sign(claims, { typ, header });
      },
    },
    // better-auth's verifyJWT knows only stored keys, so without this adapter it could not verify any token.
    adapter: {
      getJwks: async () => (await provider.jwkSet()).keys.filter(({ use }) => use === "sig").map(storedKey),
    },
  };
}

const storedKey = (key: PublishedJwk): StoredKey => ({
  id: key.kid,
  alg: "ES256",
  crv: "P-256",
  publicKey: JSON.stringify(key),
  privateKey: "",
  createdAt: new Date(0),
});

function unsupported(option: string, reason: string): ConfigError {
  return invalidOption(`a better-auth resource has ${option}, but ${reason}; remove ${option}`);
}
