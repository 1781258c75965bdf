import { invalidOption } from "../../base/errors.ts";
import type { KeysetSource } from "../managed-keys.ts";

/** The part of better-auth's options that jwksd reads. */
export interface AuthConfig {
  readonly plugins?: readonly { readonly id: string; readonly options?: object | undefined }[] | undefined;
}

interface JwtPlugin {
  readonly jwt?: { readonly expirationTime?: unknown };
}

/** Options for `oauthProvider()` and for `mcp()`, which builds on it. */
interface OAuthProviderPlugin {
  readonly disableJwtPlugin?: boolean;
  readonly idTokenExpiresIn?: number;
  readonly accessTokenExpiresIn?: number;
  readonly m2mAccessTokenExpiresIn?: number;
  readonly resources?: readonly (string | { readonly identifier: string; readonly accessTokenTtl?: number | null })[];
}

/**
 * Checks that better-auth's token lifetimes do not exceed the key policy's maximum. Call it once, at startup, with
 * `auth.options`. Lifetimes that are set elsewhere, such as a resource's lifetime in the database, are checked when a
 * token is signed.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkTokenLifetimes(
  { maxTokenLifetimeSeconds }: Pick<KeysetSource, "maxTokenLifetimeSeconds">,
  { plugins = [] }: AuthConfig,
): void {
  for (const { id, options = {} } of plugins) {
    for (const [name, seconds] of lifetimesOf[id]?.(options) ?? []) {
      if (seconds <= maxTokenLifetimeSeconds) continue;
      throw invalidOption(
        `in better-auth's options, ${name} is ${seconds} s, but must be at most ${maxTokenLifetimeSeconds} s, because a key is ` +
          `removed that long after its last signature (maxTokenLifetimeSeconds in the policy); shorten the lifetime or raise the maximum`,
      );
    }
  }
}

type Lifetimes = readonly (readonly [name: string, seconds: number])[];

/** Functions that return a plugin's token lifetimes, including better-auth's defaults, keyed by plugin ID. */
const lifetimesOf: Readonly<Record<string, (options: object) => Lifetimes>> = {
  jwt: ({ jwt }: JwtPlugin) => [["jwt.expirationTime", secondsOf(jwt?.expirationTime ?? "15m")]],
  "oauth-provider": (options: OAuthProviderPlugin) => {
    // In this case, ID tokens are signed with the client's secret and access tokens are opaque.
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

/**
 * Parses a duration such as `15m`, `2 hours` or `1 Month` and returns seconds. Ignores numbers and `Date`s, which are
 * points in time, not lifetimes.
 */
function secondsOf(expirationTime: unknown): number {
  if (typeof expirationTime !== "string") return 0;
  const [, count, unit = ""] = /^\+? ?(\d+(?:\.\d+)?) ?(mo|[smhdwy])/i.exec(expirationTime) ?? [];
  const seconds = Number(count) * (secondsPer[unit.toLowerCase()] ?? Number.NaN);
  if (Number.isNaN(seconds))
    throw invalidOption('in better-auth\'s options, jwt.expirationTime must be a duration such as "15m"');
  return seconds;
}
