import { invalidClaims } from "../../base/errors.ts";
import { duplicateMembers, folded } from "../../base/member-names.ts";

/** @see RFC 7519 section 4.1 */
const registeredClaims = new Set("iss sub aud exp nbf iat jti".split(" "));
/** Parameters that are not for callers to set. @see RFC 7515 section 4.1; RFC 7516 section 4.1.3; RFC 7797 section 3 */
const reservedHeaders = new Set("alg kid typ b64 crit zip jwk jku x5u x5c x5t x5t#S256".split(" ").map(folded));

/**
 * Refuses claims that only some verifiers take for a registered one, such as `AUD`: Go's encoding/json passes over case, and reads the last of
 * both, so what was checked here would not be what counts there.
 *
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @see RFC 7519 section 10.1.1
 */
export function checkClaimNames(claims: object): void {
  for (const name of Object.keys(claims)) {
    const registered = folded(name);
    if (registered === name || !registeredClaims.has(registered)) continue;
    throw invalidClaims(
      `claim ${JSON.stringify(name)} differs from "${registered}" in case only, which some verifiers do not see`,
    );
  }
}

/** Refuses header parameters that are set here or never, in whatever case. @throws TokenError `ERR_CLAIMS_INVALID` */
export function checkHeaderNames(header: object): void {
  const reserved = Object.keys(header).find((name) => reservedHeaders.has(folded(name)));
  if (reserved === undefined) return;
  const hint = reserved === "typ" ? "; set typ beside header" : "";
  throw invalidClaims(`header ${JSON.stringify(reserved)} is not for callers to set${hint}`);
}

/**
 * Refuses JSON with a member that is there twice: readers differ in which of the two they take.
 *
 * @param text valid JSON
 * @throws TokenError `ERR_CLAIMS_INVALID`
 * @see RFC 8259 section 4
 */
export function checkMembersOnce(text: string, what: string): void {
  if (duplicateMembers(text).length > 0) throw invalidClaims(`a member of ${what} is there twice`);
}
