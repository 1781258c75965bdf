import { ConfigError } from "../../base/errors.ts";

/** The part of a configuration of oidc-provider that is read here. */
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

/** oidc-provider has a function for each, which gives this number of seconds where the resource server sets none. */
const defaultTtl = { IdToken: 3600, AccessToken: 3600, ClientCredentials: 600 } as const;

/** oidc-provider's defaults for these are RS256, which jwksd does not sign. */
const signedWith = {
  id_token_signed_response_alg: "ES256",
  authorization_signed_response_alg: "ES256",
  introspection_signed_response_alg: "ES256",
};

/** The configuration of one instance of oidc-provider. */
export const configurationWith = <C extends Configuration>(configuration: C, keys: readonly object[]): C => ({
  ...configuration,
  jwks: { keys },
  clientDefaults: { ...signedWith, ...configuration.clientDefaults },
  features: {
    ...configuration.features,
    externalSigningSupport: { enabled: true, ack: "experimental-01" },
  },
});

/** @throws ConfigError `ERR_OPTION_INVALID` */
export function checkConfiguration(configuration: Configuration, maxTokenLifetimeSeconds: number): void {
  if (configuration.jwks !== undefined)
    throw invalid(
      '"jwks" is set, but the keys are those of the manager; import them (docs/migrate.md) and leave it out',
    );
  // Sessions and codes in the memory of an instance would end with it, at each rotation.
  if (configuration.adapter === undefined)
    throw invalid('"adapter" is missing; without one, sessions and codes are lost whenever the keys change');
  for (const [name, marginSeconds] of signedTokens(configuration)) {
    const { [name]: ttl = defaultTtl[name] } = configuration.ttl ?? {};
    const most = maxTokenLifetimeSeconds - marginSeconds;
    // What a function gives is checked when a token is signed.
    if (typeof ttl !== "number" || ttl <= most) continue;
    const which = configuration.ttl?.[name] === undefined ? "the default of ttl" : "ttl";
    throw invalid(
      `${which}.${name} is ${ttl} s, and may be ${most} s at most: a key is removed maxTokenLifetimeSeconds ` +
        `(${maxTokenLifetimeSeconds} s, of the policy) after its last signature; shorten the one or raise the other`,
    );
  }
}

type SignedToken = readonly [name: keyof typeof defaultTtl, marginSeconds: number];

/** Whose lifetimes become the `exp` of something that is signed. Opaque tokens have none. */
function signedTokens({ features = {} }: Configuration): SignedToken[] {
  const { resourceIndicators, jwtUserinfo } = features;
  const tokens: SignedToken[] = [["IdToken", 0]];
  // Whether an access token is a JWT is said by this function, for each resource server.
  if (resourceIndicators?.enabled !== false && resourceIndicators?.getResourceServerInfo !== undefined)
    tokens.push(["AccessToken", 0], ["ClientCredentials", 0]);
  // A signed reply of userinfo ends with its access token, which a replica made whose clock may be ahead.
  if (jwtUserinfo?.enabled === true) tokens.push(["AccessToken", 60]);
  return tokens;
}

const invalid = (message: string): ConfigError =>
  new ConfigError("ERR_OPTION_INVALID", `in the configuration of oidc-provider, ${message}`);
