import { invalidOption } from "../../base/errors.ts";
import type { ManagedKeys } from "../managed-keys.ts";

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
  jwt: ({ jwt }: JwtPlugin) => [["jwt.expirationTime", secondsOf(jwt?.expirationTime ?? "15m")]],
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

const [day, month, year] = [86_400, 2_592_000, 31_557_600];
const secondsPer: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: day, w: 7 * day, mo: month, y: year };

/** Of a text such as `15m`, `2 hours` or `1 Month`. A moment, as a number or a `Date`, is no lifetime. */
function secondsOf(expirationTime: unknown): number {
  if (typeof expirationTime !== "string") return 0;
  const [, count, unit = ""] = /^\+? ?(\d+(?:\.\d+)?) ?(mo|[smhdwy])/i.exec(expirationTime) ?? [];
  const seconds = Number(count) * (secondsPer[unit.toLowerCase()] ?? Number.NaN);
  if (Number.isNaN(seconds))
    throw invalidOption('in the options of better-auth, jwt.expirationTime must be a time such as "15m"');
  return seconds;
}
