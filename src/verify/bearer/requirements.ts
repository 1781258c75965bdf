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
import { type ApplicationDenial, RefusedRequest, quotable } from "./refusal.ts";

/** A valid access token and its content, including the members of the MCP SDK's `AuthInfo`. */
export interface VerifiedAccessToken {
  /** The token's claims, all of which are covered by the signature. */
  readonly claims: VerifiedClaims;
  /** Protected header. */
  readonly header: JWTHeaderParameters;
  /** Scopes, from the first claim listed in `scopeClaims` that the token has. */
  readonly scopes: string[];
  /** The `client_id` claim, or `azp`. Empty if the token has neither. */
  readonly clientId: string;
  /** The `exp` claim, in epoch seconds. */
  readonly expiresAt: number;
  /** The token itself, which is a secret. */
  readonly token: string;
}

/** A route's requirements. */
export interface Requirements {
  /**
   * Scopes that the token must have, separated by spaces. `{ any: [...] }` means that it must have one of them.
   * Default: none.
   */
  readonly scope?: string | { readonly any: readonly string[] } | undefined;
  /** Accepted authentication contexts. The `acr` claim must be one of them. Default: any. @see RFC 9470 */
  readonly acrValues?: readonly string[] | undefined;
  /**
   * Maximum time since the user signed in (`auth_time` claim), in seconds. `clockToleranceSeconds` is added to it.
   * Default: no limit.
   *
   * @see RFC 9470
   */
  readonly maxAgeSeconds?: number | undefined;
  /**
   * Decides whether a request with a valid token is let through. Receives the request as the framework passes it.
   * Returns `true` to let the request through, `false` to respond with 403, or a denial to explain the refusal. If the
   * function throws or returns an object that is not a denial, the response is a 503. Default: none.
   */
  readonly check?:
    | ((
        auth: VerifiedAccessToken,
        request: never,
      ) => boolean | ApplicationDenial | Promise<boolean | ApplicationDenial>)
    | undefined;
  /**
   * Whether a request that has no `Authorization` header (or, with the `token` option, no token) is let through without
   * auth. If a token is sent, it must be valid. Default: `false`.
   */
  readonly optional?: boolean | undefined;
}

/** Checked requirements. */
export interface CheckedRequirements extends Omit<Requirements, "check"> {
  readonly check?:
    | ((
        auth: VerifiedAccessToken,
        request: object,
      ) => boolean | ApplicationDenial | Promise<boolean | ApplicationDenial>)
    | undefined;
}

/** Rule for a string that a challenge can contain. */
const challengeText = stringThat('a string of printable ASCII without " or \\', (value) => quotable(value) === value);

const words: Rule = {
  must: 'a non-empty array of strings of printable ASCII without spaces, " or \\',
  types: ["array"],
  holds: (value: unknown): value is unknown =>
    strings.holds(value) && value.length > 0 && value.every((word) => challengeText.holds(word) && !word.includes(" ")),
};

const denialRules: Rules<ApplicationDenial> = {
  status: {
    must: "401 or 403",
    types: ["number"],
    holds: (value): value is 401 | 403 => value === 401 || value === 403,
  },
  description: stringThat("a string of 1 to 500 characters", (value) => value.length > 0 && value.length <= 500),
  // Rejects a scope of only spaces, which would require nothing.
  scope: stringThat('scopes, separated by spaces, in printable ASCII without " or \\', (value) => isScope(value)),
};

const isScope = (value: unknown): value is string => challengeText.holds(value) && value.trim() !== "";

/** Returns the members of a denial. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function checkDenial(denial: ApplicationDenial): ApplicationDenial {
  const { status, description, scope } = checkOptions(denial, denialRules, "member of a denial");
  if (status === undefined || description === undefined)
    throw invalidOption("a denial must have the members status and description");
  return { status, description, scope };
}

export const requirementRules: Rules<Requirements> = {
  scope: {
    must: 'one string of scopes, separated by spaces, in printable ASCII without " or \\, or { any: [...] } with an array of scopes',
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

/** Checks a route's requirements. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function checkRequirements(requirements: Requirements): CheckedRequirements {
  const { check, ...others } = checkOptions(requirements, requirementRules, "requirement");
  // Only the application knows the type of its framework's requests.
  return { ...others, check: check as CheckedRequirements["check"] };
}

/** Returns the scope to name in a challenge, which is one that is sufficient for the route. */
export const challengedScope = (scope: Requirements["scope"]): string | undefined =>
  typeof scope === "object" ? scope.any[0] : scope;

/** Returns a token's scopes, from the first of the named claims that the token has. @see RFC 8693 section 4.2 */
export function scopesOf(claims: JWTPayload, names: readonly string[]): string[] {
  const given = names
    .map((name) => (Object.hasOwn(claims, name) ? claims[name] : undefined))
    .find((value) => value !== undefined && value !== null);
  const list: readonly unknown[] = typeof given === "string" ? given.split(" ") : Array.isArray(given) ? given : [];
  return list.filter((name): name is string => typeof name === "string" && name !== "");
}

/** Guard settings for checking how long ago a user signed in. */
interface SignInLimits {
  readonly clock: Clock;
  /** Maximum time that a sign-in may be ahead of the clock, in seconds. */
  readonly aheadSeconds: number;
  readonly verification: { readonly clockToleranceSeconds: number };
}

/**
 * Refuses a valid token that does not meet a route's requirements. Checks the sign-in first, because a new sign-in may
 * also grant more scopes.
 *
 * @throws RefusedRequest
 */
export function refuseUnmet(
  { scope, acrValues, maxAgeSeconds }: CheckedRequirements,
  { claims, scopes }: VerifiedAccessToken,
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

/** Describes the scope that is missing, or returns `undefined`. */
function missingScope(scope: Requirements["scope"], scopes: readonly string[]): string | undefined {
  if (typeof scope === "object")
    return scope.any.some((name) => scopes.includes(name))
      ? undefined
      : `the token needs one of these scopes: ${scope.any.join(" ")}`;
  const isWhole = scope === undefined || scope.split(" ").every((name) => name === "" || scopes.includes(name));
  return isWhole ? undefined : `the token needs the scope ${scope.trim()}`;
}

/**
 * Describes the problem with the time of the sign-in (`auth_time`, in whole seconds), if there is one. A time far in
 * the future counts as a problem, because otherwise, a sign-in whose time was mistakenly given in milliseconds would
 * never expire.
 */
function signInProblem(
  { auth_time: authTime }: VerifiedClaims,
  maxAgeSeconds: number,
  { clock, aheadSeconds, verification }: SignInLimits,
): string | undefined {
  const age = Math.floor(clock.now() / 1000) - (typeof authTime === "number" ? authTime : Number.NaN);
  if (age < -aheadSeconds) return "the sign-in time is in the future (auth_time)";
  return age <= maxAgeSeconds + verification.clockToleranceSeconds ? undefined : "the user signed in too long ago";
}
