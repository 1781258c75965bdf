import { invalidClaims } from "../../base/errors.ts";

/** Seconds by which `iat` may lie ahead: more is refused by verifiers. @see FAPI 2.0 Security Profile section 5.3.2.1 */
const maxAheadSeconds = 60;

/** What bounds the times of a token. */
interface Bounds {
  /** Not given where the claims have `exp`. */
  readonly lifetimeSeconds: number | undefined;
  /** `Infinity` for no limit. */
  readonly maxLifetimeSeconds: number;
  readonly nowMs: number;
}

/** Of claims that are checked to be numbers. */
interface GivenTimes {
  readonly exp?: number;
  readonly nbf?: number;
  readonly iat?: number;
}

/**
 * The times of a token: what its claims have already, if it is within the bounds, and the rest from the clock. The key of the token is
 * published until `exp` for as long as `exp` is at most `maxLifetimeSeconds` ahead.
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
    throw invalidClaims('give either claim "exp" or lifetimeSeconds, not both');
  const exp = ownExp ?? now + checkLifetime(lifetimeSeconds, maxLifetimeSeconds);
  if (exp <= now) throw invalidClaims(`claim "exp" is ${now - exp} seconds ago: no verifier would take the token`);
  if (exp - now > maxLifetimeSeconds)
    throw invalidClaims(
      `claim "exp" is ${exp - now} seconds ahead${tooLong(maxLifetimeSeconds)}; "exp" is in seconds since 1970`,
    );
  if (iat - now > maxAheadSeconds)
    throw invalidClaims(`claim "iat" is ${iat - now} seconds ahead, and verifiers take at most ${maxAheadSeconds}`);
  for (const [name, value] of Object.entries({ iat, nbf })) {
    if (value !== undefined && value >= exp) throw invalidClaims(`claim "${name}" is not before "exp"`);
  }
  return { iat, exp };
}

/** @throws TokenError `ERR_CLAIMS_INVALID` */
export function checkLifetime(lifetimeSeconds: number | undefined, maxLifetimeSeconds: number): number {
  if (lifetimeSeconds === undefined)
    throw invalidClaims('option "lifetimeSeconds" is missing; give a whole number of seconds above 0');
  if (!Number.isSafeInteger(lifetimeSeconds) || lifetimeSeconds <= 0)
    throw invalidClaims("lifetimeSeconds must be a whole number of seconds above 0");
  if (lifetimeSeconds > maxLifetimeSeconds)
    throw invalidClaims(`lifetimeSeconds is ${lifetimeSeconds}${tooLong(maxLifetimeSeconds)}`);
  return lifetimeSeconds;
}

const tooLong = (maxLifetimeSeconds: number): string =>
  `, and may be ${maxLifetimeSeconds} at most, because the key may be removed before such a token expires; for longer tokens, raise maxTokenLifetimeSeconds (of managed keys: jwksd policy)`;
