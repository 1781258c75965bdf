import type { JWTHeaderParameters, JWTPayload } from "jose";
import {
  type Rule,
  type Rules,
  boolean,
  callback,
  checkOptions,
  number,
  object,
  textThat,
  texts,
} from "../../base/options.ts";
import { invalidOption } from "../../base/errors.ts";
import { type Denial, type Refusal, quotable } from "./refusal.ts";
import type { BearerSettings } from "./settings.ts";

/** An access token that holds, and what it says. It also has the members of `AuthInfo` of the MCP SDK. */
export interface Auth {
  /** The claims. The signature covers them all. */
  readonly claims: JWTPayload & { readonly iss: string; readonly exp: number };
  /** The protected header. */
  readonly header: JWTHeaderParameters;
  /** The claim `scope`, or another one of `scopeClaims`, as a list. */
  readonly scopes: string[];
  /** The claim `client_id`, or `azp`; empty where the token has neither. */
  readonly clientId: string;
  /** The claim `exp`: seconds since the epoch. */
  readonly expiresAt: number;
  /** The token itself. It is a secret. */
  readonly token: string;
}

/** What a route asks of a token. */
export interface Requirements {
  /** Scopes, separated by spaces; the token must have them all. `{ any: [...] }`: it must have one of these. Default: none. */
  readonly scope?: string | { readonly any: readonly string[] } | undefined;
  /** How the user must have signed in: the claim `acr` must be one of these. Default: any way. @see RFC 9470 */
  readonly acrValues?: readonly string[] | undefined;
  /** How long ago the user may have signed in (claim `auth_time`), in seconds, plus `clockToleranceSeconds`. Default: any time. @see RFC 9470 */
  readonly maxAgeSeconds?: number | undefined;
  /**
   * Looks at a token that holds, and at the request as the framework has it. `true` lets it through, `false` is a 403, and a denial says more.
   * If it throws, or gives an object that is no denial, the answer is a 503. Default: nothing more is asked.
   */
  readonly check?: ((auth: Auth, request: never) => boolean | Denial | Promise<boolean | Denial>) | undefined;
  /** Lets a request without a header `Authorization` through, without auth. With the option `token`, that is a request without a token. If a token comes, it must be good. Default: `false`. */
  readonly optional?: boolean | undefined;
}

/** A challenge shows it. */
const shown = textThat('a string of printable ASCII without " and \\', (value) => quotable(value) === value);

const words: Rule = {
  must: 'an array, not empty, of strings of printable ASCII without spaces, " and \\',
  types: ["array"],
  holds: (value: unknown): value is unknown =>
    texts.holds(value) && value.length > 0 && value.every((word) => shown.holds(word) && !word.includes(" ")),
};

const denialRules: Rules<Denial> = {
  status: {
    must: "401 or 403",
    types: ["number"],
    holds: (value): value is 401 | 403 => value === 401 || value === 403,
  },
  description: textThat("a string of 1 to 500 characters", (value) => value.length > 0 && value.length <= 500),
  // Spaces alone would ask for nothing.
  scope: textThat('scopes, separated by spaces, in printable ASCII without " and \\', (value) => isShownScope(value)),
};

const isShownScope = (value: unknown): value is string => shown.holds(value) && value.trim() !== "";

/** @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function checkDenial(denial: Denial): Denial {
  const { status, description, scope } = checkOptions(denial, denialRules, "member of a denial");
  if (status === undefined || description === undefined)
    throw invalidOption("a denial needs the members status and description");
  return { status, description, scope };
}

export const requirementRules: Rules<Requirements> = {
  scope: {
    must: 'one string of scopes, separated by spaces, in printable ASCII without " and \\, or { any: [...] } with an array of scopes',
    types: ["string", "object"],
    holds: (value): value is unknown =>
      object.holds(value)
        ? Object.keys(value).join(" ") === "any" && words.holds(Reflect.get(value, "any"))
        : isShownScope(value),
  },
  acrValues: words,
  maxAgeSeconds: number(0),
  check: callback,
  optional: boolean,
};

/** @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export const checkRequirements = (requirements: Requirements): Requirements =>
  checkOptions(requirements, requirementRules, "requirement");

/** The scope that a challenge names: one that is enough. */
export const shownScope = (scope: Requirements["scope"]): string | undefined =>
  typeof scope === "object" ? scope.any[0] : scope;

/** The scopes of a token, in the first of these claims that it has. @see RFC 8693 section 4.2 */
export function scopesOf(claims: JWTPayload, names: readonly string[]): string[] {
  const given = names.map((name) => claims[name] ?? undefined).find((value) => value !== undefined);
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
  const lack = lackOf(scope, scopes);
  return lack === undefined ? undefined : { status: 403, error: "insufficient_scope", description: lack };
}

/** What a token with these scopes lacks, if it lacks any. */
function lackOf(scope: Requirements["scope"], scopes: readonly string[]): string | undefined {
  if (typeof scope === "object")
    return scope.any.some((name) => scopes.includes(name))
      ? undefined
      : `the token needs one of these scopes: ${scope.any.join(" ")}`;
  const isWhole = scope === undefined || scope.split(" ").every((name) => name === "" || scopes.includes(name));
  return isWhole ? undefined : `the token needs the scope ${scope.trim()}`;
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
