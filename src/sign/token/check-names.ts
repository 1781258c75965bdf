import { duplicateMembers, folded } from "../../base/duplicate-members.ts";
import { invalidClaims } from "../../base/errors.ts";

/** Registered claims. @see RFC 7519 section 4.1 */
const registeredClaims = new Set("iss sub aud exp nbf iat jti".split(" "));
/**
 * Header parameters that callers must not set.
 *
 * @see RFC 7515 section 4.1; RFC 7516 section 4.1.3; RFC 7797 section 3
 */
const reservedHeaders = new Set("alg kid typ b64 crit zip jwk jku x5u x5c x5t x5t#S256".split(" ").map(folded));

/**
 * Rejects claims that only some verifiers treat as registered claims, such as `AUD`. Go's encoding/json ignores case
 * and uses the last of two matching members, so it could use a value that was not checked here.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @see RFC 7519 section 10.1.1
 */
export function checkClaimNames(claims: object): void {
  for (const name of Object.keys(claims)) {
    const registered = folded(name);
    if (registered === name || !registeredClaims.has(registered)) continue;
    throw invalidClaims(
      `claim ${JSON.stringify(name)} differs from "${registered}" only in case, which some verifiers ignore`,
    );
  }
}

/**
 * Rejects reserved header parameters, regardless of case.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 */
export function checkHeaderNames(header: object): void {
  const reserved = Object.keys(header).find((name) => reservedHeaders.has(folded(name)));
  if (reserved === undefined) return;
  const hint = reserved === "typ" ? '; use the "typ" option' : "";
  throw invalidClaims(`header ${JSON.stringify(reserved)} must not be set by the caller${hint}`);
}

/**
 * Rejects JSON with a duplicate member, because some parsers use the first occurrence and others use the last.
 *
 * @param text valid JSON
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @see RFC 8259 section 4
 */
export function checkMembersOnce(text: string, name: string): void {
  if (duplicateMembers(text).length > 0) throw invalidClaims(`${name} has a duplicate member`);
}
