import { invalidClaims } from "../../base/errors.ts";

/**
 * Maximum time that `iat` may be ahead of the clock, in seconds. Verifiers reject tokens whose `iat` is further ahead.
 * @see FAPI 2.0 Security Profile section 5.3.2.1
 */
const maxAheadSeconds = 60;

/** The limits that apply to a token's times. */
interface Bounds {
  /** Lifetime, in seconds, or `undefined` if the claims have `exp`. */
  readonly lifetimeSeconds: number | undefined;
  /** Maximum lifetime, in seconds. `Infinity` means no limit. */
  readonly maxLifetimeSeconds: number;
  readonly nowMs: number;
}

/** The times in a token's claims, which are already known to be numbers. */
interface GivenTimes {
  readonly exp?: number;
  readonly nbf?: number;
  readonly iat?: number;
}

/**
 * Returns a token's times. Times in the claims must be within the limits; missing times are derived from the clock. As
 * long as `exp` is at most `maxLifetimeSeconds` in the future, the token's key stays published until the token expires.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @see RFC 7519 sections 4.1.4 to 4.1.6
 */
export function timesOf(
  claims: GivenTimes,
  { lifetimeSeconds, maxLifetimeSeconds, nowMs }: Bounds,
): { readonly iat: number; readonly exp: number } {
  const now = Math.floor(nowMs / 1000);
  const { exp: ownExp, iat = now, nbf } = claims;
  if (ownExp !== undefined && lifetimeSeconds !== undefined)
    throw invalidClaims('set either claim "exp" or lifetimeSeconds, not both');
  const exp = ownExp ?? now + checkLifetime(lifetimeSeconds, maxLifetimeSeconds);
  if (exp <= now)
    throw invalidClaims(`claim "exp" is ${now - exp} seconds in the past, so no verifier would accept the token`);
  if (exp - now > maxLifetimeSeconds)
    throw invalidClaims(
      `claim "exp" is ${exp - now} seconds in the future${tooLong(maxLifetimeSeconds)}; "exp" is in seconds since 1970`,
    );
  if (iat - now > maxAheadSeconds)
    throw invalidClaims(
      `claim "iat" is ${iat - now} seconds in the future, but at most ${maxAheadSeconds} are allowed`,
    );
  for (const [name, value] of Object.entries({ iat, nbf })) {
    if (value !== undefined && value >= exp) throw invalidClaims(`claim "${name}" must be before "exp"`);
  }
  return { iat, exp };
}

/** Checks and returns a lifetime in seconds. @throws TokenError `ERR_CLAIMS_INVALID` */
export function checkLifetime(lifetimeSeconds: number | undefined, maxLifetimeSeconds: number): number {
  if (lifetimeSeconds === undefined)
    throw invalidClaims('the "lifetimeSeconds" option is missing; set it to a whole number of seconds above 0');
  if (!Number.isSafeInteger(lifetimeSeconds) || lifetimeSeconds <= 0)
    throw invalidClaims("lifetimeSeconds must be a whole number of seconds above 0");
  if (lifetimeSeconds > maxLifetimeSeconds)
    throw invalidClaims(`lifetimeSeconds is ${lifetimeSeconds}${tooLong(maxLifetimeSeconds)}`);
  return lifetimeSeconds;
}

const tooLong = (maxLifetimeSeconds: number): string =>
  `, but must be at most ${maxLifetimeSeconds}, because otherwise the key might be removed before the token expires; to allow a longer lifetime, raise maxTokenLifetimeSeconds (for managed keys, with jwksd policy)`;
