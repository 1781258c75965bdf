import type { JWTPayload } from "jose";
import { TokenError } from "../../base/errors.ts";

/**
 * How far in the future `nbf` and `iat` may be, in seconds. A token is always accepted up to `accepted`, and always
 * rejected beyond `refused`.
 *
 * @see FAPI 2.0 Security Profile section 5.3.2.1
 */
export const futureSeconds = { accepted: 10, refused: 60 } as const;

/**
 * Rejects an assertion with additional audiences, because each of them could replay it here.
 *
 * @throws TokenError `ERR_TOKEN_CLAIM`
 * @see draft-ietf-oauth-rfc7523bis section 4; CVE-2025-27370, CVE-2025-27371
 */
export function checkSoleAudience({ aud }: JWTPayload, names: readonly string[]): void {
  const other = [aud].flat().some((name) => name === undefined || !names.includes(name));
  if (other) throw new TokenError("ERR_TOKEN_CLAIM", 'claim "aud" must name only this provider');
}

/** Bounds on the times in a token, in seconds. */
export interface TimeBounds {
  readonly nowSeconds: number;
  readonly maxLifetimeSeconds: number;
  readonly clockToleranceSeconds: number;
}

/**
 * Rejects a token whose times are too far in the future, which RFC 7519 would allow.
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
    throw new TokenError("ERR_TOKEN_CLAIM", `claim "exp" is more than ${maxLifetimeSeconds} seconds in the future`);
  const aheadSeconds = Math.min(Math.max(clockToleranceSeconds, futureSeconds.accepted), futureSeconds.refused);
  for (const name of ["nbf", "iat"] as const) {
    if ((claims[name] ?? 0) > Math.floor(nowSeconds) + aheadSeconds)
      throw new TokenError("ERR_TOKEN_CLAIM", `claim "${name}" is more than ${aheadSeconds} seconds in the future`);
  }
}

/**
 * Rejects a request object whose lifetime exceeds the maximum, which is an hour by default. Its `nbf` therefore cannot
 * be older than that maximum.
 *
 * @throws TokenError `ERR_TOKEN_CLAIM`
 * @see FAPI 2.0 Message Signing section 5.3.1
 */
export function checkSpan({ nbf, exp = 0 }: JWTPayload, maxLifetimeSeconds: number): void {
  if (nbf !== undefined && exp - nbf > maxLifetimeSeconds)
    throw new TokenError("ERR_TOKEN_CLAIM", `claim "exp" is more than ${maxLifetimeSeconds} seconds after "nbf"`);
}
