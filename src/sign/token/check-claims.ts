import { invalidClaims } from "../../base/errors.ts";
import { type Rule, string, nonEmptyString } from "../../base/options.ts";
import { checkClaimNames } from "./check-names.ts";

const audience: Rule = {
  must: "a non-empty string or a list of non-empty strings",
  types: ["string", "array"],
  holds(value): value is unknown {
    const names: readonly unknown[] = Array.isArray(value) ? [...(value as unknown[])] : [value];
    return names.length > 0 && names.every(nonEmptyString.holds);
  },
};

const seconds: Rule = {
  must: "a number of seconds since 1970",
  types: ["number"],
  holds: (value): value is number => Number.isFinite(value),
};

/**
 * Rules for the types of the given claims. Values of any other type are rejected, because only some verifiers accept
 * them.
 *
 * @see RFC 7519 section 4.1; OpenID Connect Core 1.0 section 2
 */
const claimRules: readonly (readonly [name: string, rule: Rule])[] = Object.entries({
  sub: nonEmptyString,
  aud: audience,
  exp: seconds,
  nbf: seconds,
  iat: seconds,
  jti: string,
  auth_time: seconds,
});

/** Checks the claims' names and types, and the issuer. @throws TokenError `ERR_CLAIMS_INVALID` */
export function checkClaims(claims: Readonly<Record<string, unknown>>, issuer: string): void {
  checkClaimNames(claims);
  const { iss } = claims;
  if (iss !== undefined && iss !== issuer) throw invalidClaims(`claim "iss" must be ${JSON.stringify(issuer)}`);
  for (const [name, rule] of claimRules) if (claims[name] !== undefined) checkClaim(name, claims[name], rule);
}

/** Rejects an `aud` that no verifier could match. @throws TokenError `ERR_CLAIMS_INVALID` */
export const checkAudience = (aud: unknown): void => checkClaim("aud", aud, audience);

function checkClaim(name: string, value: unknown, { must, holds }: Rule): void {
  if (!holds(value)) throw invalidClaims(`claim "${name}" must be ${must}`);
}
