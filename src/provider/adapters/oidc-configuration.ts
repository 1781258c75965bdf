import { type ConfigError, invalidOption } from "../../base/errors.ts";

/** The part of an oidc-provider configuration that jwksd reads. */
export interface Configuration {
  readonly adapter?: unknown;
  readonly jwks?: unknown;
  readonly routes?: { readonly jwks?: string };
  readonly ttl?: Readonly<Record<string, unknown>>;
  readonly clientDefaults?: object;
  readonly features?: {
    readonly encryption?: { readonly enabled?: boolean };
    readonly jwtUserinfo?: { readonly enabled?: boolean };
    readonly resourceIndicators?: { readonly enabled?: boolean; readonly getResourceServerInfo?: unknown };
  };
}

/**
 * oidc-provider's default lifetimes, in seconds. In oidc-provider, the defaults are functions that return these values
 * if the resource server does not set a lifetime.
 */
const defaultTtl = { IdToken: 3600, AccessToken: 3600, ClientCredentials: 600 } as const;

/** Signing algorithms. In oidc-provider, they default to RS256, but jwksd does not sign with RS256. */
const signedWith = {
  id_token_signed_response_alg: "ES256",
  authorization_signed_response_alg: "ES256",
  introspection_signed_response_alg: "ES256",
};

/** Returns the configuration of one oidc-provider instance. */
export const configurationWith = <C extends Configuration>(configuration: C, keys: readonly object[]): C => ({
  ...configuration,
  jwks: { keys },
  clientDefaults: { ...signedWith, ...configuration.clientDefaults },
  features: {
    ...configuration.features,
    externalSigningSupport: { enabled: true, ack: "experimental-01" },
  },
});

/** Checks a configuration. @throws ConfigError `ERR_OPTION_INVALID` */
export function checkConfiguration(configuration: Configuration, maxTokenLifetimeSeconds: number): void {
  if (configuration.jwks !== undefined)
    throw invalid(
      '"jwks" is set, but the manager provides the keys; import your keys (docs/migrate.md) and remove "jwks"',
    );
  // Sessions and codes in an instance's memory would be lost, along with the instance, on every rotation.
  if (configuration.adapter === undefined)
    throw invalid('"adapter" is missing, so sessions and codes would be lost whenever the keys change; add an adapter');
  for (const [name, marginSeconds] of signedTokens(configuration)) {
    const { [name]: ttl = defaultTtl[name] } = configuration.ttl ?? {};
    const most = maxTokenLifetimeSeconds - marginSeconds;
    // If it is a function, its result is checked when a token is signed.
    if (typeof ttl !== "number" || ttl <= most) continue;
    const which = configuration.ttl?.[name] === undefined ? "the default of ttl" : "ttl";
    throw invalid(
      `${which}.${name} is ${ttl} s, but must be at most ${most} s, because a key is removed ${maxTokenLifetimeSeconds} s ` +
        `(maxTokenLifetimeSeconds in the policy) after its last signature; shorten the lifetime or raise the maximum`,
    );
  }
}

type SignedToken = readonly [name: keyof typeof defaultTtl, marginSeconds: number];

/**
 * Returns the kinds of tokens that are signed JWTs, whose `exp` is set from the lifetime. Opaque tokens are not signed.
 */
function signedTokens({ features = {} }: Configuration): SignedToken[] {
  const { resourceIndicators, jwtUserinfo } = features;
  const tokens: SignedToken[] = [["IdToken", 0]];
  // This function decides for each resource server whether its access tokens are JWTs.
  if (resourceIndicators?.enabled !== false && resourceIndicators?.getResourceServerInfo !== undefined)
    tokens.push(["AccessToken", 0], ["ClientCredentials", 0]);
  // A signed userinfo response expires with its access token, which may come from a replica whose clock is ahead.
  if (jwtUserinfo?.enabled === true) tokens.push(["AccessToken", 60]);
  return tokens;
}

const invalid = (message: string): ConfigError => invalidOption(`in the oidc-provider configuration, ${message}`);
