import type { JWTPayload } from "jose";
import { type Rules, checkOptions, number, textThat, texts } from "../../base/options.ts";
import { type Refusal, quotable } from "./refusal.ts";
import type { BearerSettings } from "./settings.ts";

/** What a route asks of a token. */
export interface Requirements {
  /** Scopes, separated by spaces; the token must have them all, in `scope` or `scp`. Default: none. */
  readonly scope?: string | undefined;
  /** How the user must have signed in: the claim `acr` must be one of these. Default: any way. @see RFC 9470 */
  readonly acrValues?: readonly string[] | undefined;
  /** How long ago the user may have signed in (claim `auth_time`), in seconds, plus `clockToleranceSeconds`. Default: any time. @see RFC 9470 */
  readonly maxAgeSeconds?: number | undefined;
}

/** A challenge shows it. */
const shown = textThat('a string of printable ASCII without " and \\', (value) => quotable(value) === value);

const rules: Rules<Requirements> = {
  // Spaces alone would ask for nothing.
  scope: textThat(
    'one string of scopes, separated by spaces, in printable ASCII without " and \\',
    (value) => shown.holds(value) && value.trim() !== "",
  ),
  acrValues: {
    must: 'an array, not empty, of strings of printable ASCII without spaces, " and \\',
    holds: (value): value is unknown =>
      texts.holds(value) && value.length > 0 && value.every((acr) => shown.holds(acr) && !acr.includes(" ")),
  },
  maxAgeSeconds: number(0),
};

/** @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export const checkRequirements = (requirements: Requirements): Requirements =>
  checkOptions(requirements, rules, "requirement");

/** The scopes of a token: `scope`, or `scp` of providers that are older than RFC 9068. @see RFC 8693 section 4.2 */
export function scopesOf({ scope, scp }: JWTPayload): string[] {
  const given = scope ?? scp;
  const list: readonly unknown[] = typeof given === "string" ? given.split(" ") : Array.isArray(given) ? given : [];
  return list.filter((name): name is string => typeof name === "string" && name !== "");
}

/** What a valid token lacks for a route. The sign-in is checked first, because a new sign-in may bring more scope, too. */
export function unmet(
  { scope, acrValues, maxAgeSeconds }: Requirements,
  claims: JWTPayload,
  scopes: readonly string[],
  settings: BearerSettings,
): Refusal | undefined {
  const hasAcr = acrValues === undefined || acrValues.includes(claims["acr"] as string);
  const badAge = maxAgeSeconds === undefined ? undefined : badAgeOf(claims["auth_time"], maxAgeSeconds, settings);
  const lacking = hasAcr ? badAge : "the user must sign in in another way";
  if (lacking !== undefined) {
    return {
      status: 401,
      error: "insufficient_user_authentication",
      description: lacking,
      parameters: {
        ...(acrValues !== undefined && { acr_values: acrValues.join(" ") }),
        ...(maxAgeSeconds !== undefined && { max_age: String(maxAgeSeconds) }),
      },
    };
  }
  if (scope === undefined || scope.split(" ").every((name) => name === "" || scopes.includes(name))) return undefined;
  return { status: 403, error: "insufficient_scope", description: "the token has too little scope" };
}

/** What is wrong with the age of a sign-in, in whole seconds, as `auth_time` has them. A time in milliseconds would never get old. */
function badAgeOf(
  authTime: unknown,
  maxAgeSeconds: number,
  { clock, aheadSeconds, verification }: BearerSettings,
): string | undefined {
  const age = Math.floor(clock.now() / 1000) - (typeof authTime === "number" ? authTime : Number.NaN);
  if (age < -aheadSeconds) return "the sign-in is of the future (auth_time)";
  return age <= maxAgeSeconds + verification.clockToleranceSeconds ? undefined : "the user signed in too long ago";
}
