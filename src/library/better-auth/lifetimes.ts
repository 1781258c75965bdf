import { invalidOption } from "../../base/errors.ts";
import type { ManagedKeys } from "../provider/managed-keys.ts";

/** The part of the options of better-auth that is read here. */
export interface AuthConfig {
  readonly plugins?: readonly { readonly id: string; readonly options?: object | undefined }[] | undefined;
}

interface JwtPlugin {
  readonly jwt?: { readonly expirationTime?: unknown };
}

/** Of `oauthProvider()`, and of `mcp()`, which is one. */
interface OAuthProviderPlugin {
  readonly disableJwtPlugin?: boolean;
  readonly idTokenExpiresIn?: number;
  readonly accessTokenExpiresIn?: number;
  readonly m2mAccessTokenExpiresIn?: number;
  readonly resources?: readonly (string | { readonly identifier: string; readonly accessTokenTtl?: number | null })[];
}

/**
 * Refuses a better-auth whose tokens live for longer than the policy of their keys allows. Call it once, at the start, with `auth.options`. What is
 * set elsewhere, such as the lifetime of a resource in the database, is checked when a token is signed.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkLifetimes(
  { maxTokenLifetimeSeconds }: Pick<ManagedKeys, "maxTokenLifetimeSeconds">,
  { plugins = [] }: AuthConfig,
): void {
  for (const { id, options = {} } of plugins) {
    for (const [name, seconds] of lifetimesOf[id]?.(options) ?? []) {
      if (seconds <= maxTokenLifetimeSeconds) continue;
      throw invalidOption(
        `in the options of better-auth, ${name} is ${seconds} s, and may be ${maxTokenLifetimeSeconds} s at most: a key is removed ` +
          `maxTokenLifetimeSeconds (of the policy) after its last signature; shorten the one or raise the other`,
      );
    }
  }
}

type Lifetimes = readonly (readonly [name: string, seconds: number])[];

/** By the id of a plugin, with the defaults of better-auth. */
const lifetimesOf: Readonly<Record<string, (options: object) => Lifetimes>> = {
  jwt: ({ jwt: { expirationTime } = {} }: JwtPlugin) => [["jwt.expirationTime", secondsOf(expirationTime ?? "15m")]],
  "oauth-provider": (options: OAuthProviderPlugin) => {
    // Its ID tokens are signed with the secret of the client then, and its access tokens are opaque.
    if (options.disableJwtPlugin === true) return [];
    const { idTokenExpiresIn = 36_000, accessTokenExpiresIn = 3600, m2mAccessTokenExpiresIn = 3600 } = options;
    const { resources = [] } = options;
    return [
      ...Object.entries({ idTokenExpiresIn, accessTokenExpiresIn, m2mAccessTokenExpiresIn }),
      ...resources
        .filter((resource) => typeof resource !== "string")
        .map(({ identifier, accessTokenTtl }) => [`accessTokenTtl of ${identifier}`, accessTokenTtl ?? 0] as const),
    ];
  },
};

const secondsPer: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800, y: 31_557_600 };

/** Of a text such as `15m` or `2 hours`. A moment, as a number or a `Date`, is no lifetime. */
function secondsOf(expirationTime: unknown): number {
  const [, count, unit = ""] = /^(\d+(?:\.\d+)?) ?([smhdwy])/.exec(String(expirationTime)) ?? [];
  return Number(count ?? 0) * (secondsPer[unit] ?? 0);
}
