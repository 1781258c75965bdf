import type { JWTHeaderParameters, JWTPayload } from "jose";
import type { Clock } from "../../base/clock.ts";
import { invalidOption } from "../../base/errors.ts";
import {
  type Rule,
  type Rules,
  boolean,
  callback,
  checkOptions,
  number,
  object,
  stringThat,
  strings,
} from "../../base/options.ts";
import type { VerifiedClaims } from "../token/verify.ts";
import { type Denial, RefusedRequest, quotable } from "./refusal.ts";

/** A valid access token and its content. It also has the members of the MCP SDK's `AuthInfo`. */
export interface Auth {
  /** Claims. The signature covers them all. */
  readonly claims: VerifiedClaims;
  /** Protected header. */
  readonly header: JWTHeaderParameters;
  /** Scopes from the `scope` claim, or from another claim in `scopeClaims`. */
  readonly scopes: string[];
  /** `client_id` claim, or `azp`; empty if the token has neither. */
  readonly clientId: string;
  /** `exp` claim, in epoch seconds. */
  readonly expiresAt: number;
  /** The token itself. It is a secret. */
  readonly token: string;
}

/** Requirements of a route for the token. */
export interface Requirements {
  /**
   * Scopes, separated by spaces, all of which the token must have. With `{ any: [...] }`, the token must have one of
   * them. Default: none.
   */
  readonly scope?: string | { readonly any: readonly string[] } | undefined;
  /** Accepted authentication contexts: the `acr` claim must be one of these. Default: any. @see RFC 9470 */
  readonly acrValues?: readonly string[] | undefined;
  /** Longest time since the user signed in (`auth_time` claim), in seconds, plus `clockToleranceSeconds`. Default: any time. @see RFC 9470 */
  readonly maxAgeSeconds?: number | undefined;
  /**
   * Decides about a request with a valid token. Receives the request as the framework passes it. `true` lets the
   * request through, `false` is a 403, and a denial explains the refusal. If the function throws, or returns an object
   * that is not a denial, the response is a 503. Default: none.
   */
  readonly check?: ((auth: Auth, request: never) => boolean | Denial | Promise<boolean | Denial>) | undefined;
  /**
   * Whether a request without an `Authorization` header is let through, without auth. With the `token` option, that is a request without a
   * token. A token that is sent must be valid. Default: `false`.
   */
  readonly optional?: boolean | undefined;
}

/** Checked requirements. */
export interface CheckedRequirements extends Omit<Requirements, "check"> {
  readonly check?: ((auth: Auth, request: object) => boolean | Denial | Promise<boolean | Denial>) | undefined;
}

/** A string that a challenge can contain. */
const challengeText = stringThat('a string of printable ASCII without " and \\', (value) => quotable(value) === value);

const words: Rule = {
  must: 'a non-empty array of strings of printable ASCII without spaces, " and \\',
  types: ["array"],
  holds: (value: unknown): value is unknown =>
    strings.holds(value) && value.length > 0 && value.every((word) => challengeText.holds(word) && !word.includes(" ")),
};

const denialRules: Rules<Denial> = {
  status: {
    must: "401 or 403",
    types: ["number"],
    holds: (value): value is 401 | 403 => value === 401 || value === 403,
  },
  description: stringThat("a string of 1 to 500 characters", (value) => value.length > 0 && value.length <= 500),
  // Refuses a scope of only spaces, which would require nothing.
  scope: stringThat('scopes, separated by spaces, in printable ASCII without " and \\', (value) => isScope(value)),
};

const isScope = (value: unknown): value is string => challengeText.holds(value) && value.trim() !== "";

/** Returns the members of a denial. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function checkDenial(denial: Denial): Denial {
  const { status, description, scope } = checkOptions(denial, denialRules, "member of a denial");
  if (status === undefined || description === undefined)
    throw invalidOption("a denial must have the members status and description");
  return { status, description, scope };
}

export const requirementRules: Rules<Requirements> = {
  scope: {
    must: 'one string of scopes, separated by spaces, in printable ASCII without " and \\, or { any: [...] } with an array of scopes',
    types: ["string", "object"],
    holds: (value): value is unknown =>
      object.holds(value)
        ? Object.keys(value).join(" ") === "any" && words.holds(Reflect.get(value, "any"))
        : isScope(value),
  },
  acrValues: words,
  maxAgeSeconds: number(0),
  check: callback,
  optional: boolean,
};

/** @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function checkRequirements(requirements: Requirements): CheckedRequirements {
  const { check, ...others } = checkOptions(requirements, requirementRules, "requirement");
  // Only the application knows its framework's request type.
  return { ...others, check: check as CheckedRequirements["check"] };
}

/** Returns the scope to name in a challenge, which is sufficient for the route. */
export const challengedScope = (scope: Requirements["scope"]): string | undefined =>
  typeof scope === "object" ? scope.any[0] : scope;

/** Returns a token's scopes, from the first of these claims that it has. @see RFC 8693 section 4.2 */
export function scopesOf(claims: JWTPayload, names: readonly string[]): string[] {
  const given = names
    .map((name) => (Object.hasOwn(claims, name) ? claims[name] : undefined))
    .find((value) => value !== undefined && value !== null);
  const list: readonly unknown[] = typeof given === "string" ? given.split(" ") : Array.isArray(given) ? given : [];
  return list.filter((name): name is string => typeof name === "string" && name !== "");
}

/** Guard settings that limit the time of a sign-in. */
interface SignInLimits {
  readonly clock: Clock;
  /** How far the time of a sign-in may be in the future, in seconds. */
  readonly aheadSeconds: number;
  readonly verification: { readonly clockToleranceSeconds: number };
}

/**
 * Refuses a valid token that does not meet a route's requirements. The sign-in is checked first, because a new sign-in may also grant more
 * scopes.
 *
 * @throws RefusedRequest
 */
export function refuseUnmet(
  { scope, acrValues, maxAgeSeconds }: CheckedRequirements,
  { claims, scopes }: Auth,
  settings: SignInLimits,
): void {
  const acr = claims["acr"];
  const hasAcr = acrValues === undefined || acrValues.some((value) => value === acr);
  const ageProblem = maxAgeSeconds === undefined ? undefined : signInProblem(claims, maxAgeSeconds, settings);
  const problem = hasAcr ? ageProblem : "the user must sign in with a different method";
  if (problem !== undefined) {
    throw new RefusedRequest({
      status: 401,
      error: "insufficient_user_authentication",
      description: problem,
      parameters: {
        ...(acrValues !== undefined && { acr_values: acrValues.join(" ") }),
        ...(maxAgeSeconds !== undefined && { max_age: String(maxAgeSeconds) }),
      },
    });
  }
  const missing = missingScope(scope, scopes);
  if (missing !== undefined)
    throw new RefusedRequest({ status: 403, error: "insufficient_scope", description: missing });
}

/** Returns what is missing from these scopes, or `undefined`. */
function missingScope(scope: Requirements["scope"], scopes: readonly string[]): string | undefined {
  if (typeof scope === "object")
    return scope.any.some((name) => scopes.includes(name))
      ? undefined
      : `the token needs one of these scopes: ${scope.any.join(" ")}`;
  const isWhole = scope === undefined || scope.split(" ").every((name) => name === "" || scopes.includes(name));
  return isWhole ? undefined : `the token needs the scope ${scope.trim()}`;
}

/**
 * Returns the problem with the sign-in's time (`auth_time`, in whole seconds), if there is one. Refuses a time far in
 * the future, because a time in milliseconds would never expire.
 */
function signInProblem(
  { auth_time: authTime }: VerifiedClaims,
  maxAgeSeconds: number,
  { clock, aheadSeconds, verification }: SignInLimits,
): string | undefined {
  const age = Math.floor(clock.now() / 1000) - (typeof authTime === "number" ? authTime : Number.NaN);
  if (age < -aheadSeconds) return "the sign-in is in the future (auth_time)";
  return age <= maxAgeSeconds + verification.clockToleranceSeconds ? undefined : "the user signed in too long ago";
}
