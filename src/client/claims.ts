import type { JWTHeaderParameters, JWTPayload } from "jose";
import { TokenError } from "../errors.ts";

/** How far ahead `nbf` and `iat` may lie at least, and at most, in seconds. @see FAPI 2.0 Security Profile section 5.3.2.1 */
export const futureSeconds = { accepted: 10, refused: 60 } as const;

/**
 * A token that says what it is must be this: one that was signed for another use, such as `dpop+jwt` or `logout+jwt`, is refused.
 * A token that does not say so, or is a `JWT`, is told apart by its claims.
 *
 * @throws TokenError `ERR_TOKEN_TYP`
 * @see RFC 8725 section 3.11; RFC 7515 section 4.1.9 (compared as a media type)
 */
export function checkTyp({ typ }: JWTHeaderParameters, own: string): void {
  const given: unknown = typ;
  if (given === undefined) return;
  const type = typeof given === "string" ? given.toLowerCase().replace(/^application\/(?!.*\/)/, "") : "";
  if (type !== "jwt" && type !== own) throw new TokenError("ERR_TOKEN_TYP", `the header typ is neither ${own} nor JWT`);
}

/**
 * Refuses an assertion that is for others as well: each of them could use it here.
 *
 * @throws TokenError `ERR_TOKEN_CLAIM`
 * @see draft-ietf-oauth-rfc7523bis section 4; CVE-2025-27370, CVE-2025-27371
 */
export function checkSoleAudience({ aud }: JWTPayload, names: readonly string[]): void {
  const other = [aud].flat().some((name) => !names.includes(name as string));
  if (other) throw new TokenError("ERR_TOKEN_CLAIM", 'claim "aud" names others than this provider');
}

/** Bounds of the times in a token, in seconds. */
export interface TimeBounds {
  readonly nowSeconds: number;
  readonly maxLifetimeSeconds: number;
  readonly clockToleranceSeconds: number;
}

/**
 * Checks the times of a token against what goes beyond RFC 7519: none may lie far ahead.
 *
 * @throws TokenError `ERR_TOKEN_EXPIRED`, `ERR_TOKEN_CLAIM`
 * @see RFC 7523 section 3, points 4 to 6; FAPI 2.0 Security Profile section 5.3.2.1
 */
export function checkTimes(claims: JWTPayload, bounds: TimeBounds): void {
  const { nowSeconds, maxLifetimeSeconds, clockToleranceSeconds } = bounds;
  const { exp = 0 } = claims;
  if (exp <= Math.floor(nowSeconds) - clockToleranceSeconds)
    throw new TokenError("ERR_TOKEN_EXPIRED", "the token has expired");
  if (exp > nowSeconds + maxLifetimeSeconds + clockToleranceSeconds)
    throw new TokenError("ERR_TOKEN_CLAIM", `claim "exp" is more than ${maxLifetimeSeconds} seconds ahead`);
  const aheadSeconds = Math.min(Math.max(clockToleranceSeconds, futureSeconds.accepted), futureSeconds.refused);
  for (const name of ["nbf", "iat"] as const) {
    if ((claims[name] ?? 0) > Math.floor(nowSeconds) + aheadSeconds)
      throw new TokenError("ERR_TOKEN_CLAIM", `claim "${name}" is more than ${aheadSeconds} seconds ahead`);
  }
}

/**
 * Refuses a request object that is good for longer than that. With the default, it is also one whose `nbf` is more than an hour old.
 *
 * @throws TokenError `ERR_TOKEN_CLAIM`
 * @see FAPI 2.0 Message Signing section 5.3.1
 */
export function checkLifetime({ nbf, exp = 0 }: JWTPayload, maxLifetimeSeconds: number): void {
  if (nbf !== undefined && exp - nbf > maxLifetimeSeconds)
    throw new TokenError("ERR_TOKEN_CLAIM", `claim "exp" is more than ${maxLifetimeSeconds} seconds after "nbf"`);
}
