import { invalidClaims } from "../../base/errors.ts";
import { checkClaimNames } from "../../sign/token/names.ts";
import { checkAudience } from "../../sign/token/claims.ts";
import { type SignPolicy, checkAllowedAudience, forbidden } from "./policy.ts";
import { readJson } from "./request.ts";

interface AccountRules {
  readonly issuer: string;
  readonly policy: SignPolicy;
  readonly maxLifetimeSeconds: number;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** The caller is on the same machine. It may have waited for a connection. */
const toleranceSeconds = 60;

const label = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
/** Namespaces are labels of DNS, and names of service accounts are names of DNS. @see RFC 1123 section 2.1 */
const serviceAccount = new RegExp(`^system:serviceaccount:${label}:(?=.{1,253}$)${label}(?:\\.${label})*$`);

/**
 * Refuses claims that are not those of a Kubernetes service account of this issuer. The API server composes the claims, and jwksd signs them
 * unchanged, so this check keeps whoever may connect from getting other tokens.
 *
 * @param payload in base64url
 * @throws TokenError `ERR_CLAIMS_INVALID`, `ERR_CLAIMS_FORBIDDEN`
 */
export function checkServiceAccountClaims(
  payload: string,
  { issuer, policy, maxLifetimeSeconds, now }: AccountRules,
): void {
  const bytes = Buffer.from(payload, "base64url");
  if (payload === "" || bytes.toString("base64url") !== payload) throw invalidClaims("the claims are not in base64url");
  const claims = readJson(bytes, "the payload");
  checkClaimNames(claims);
  const { iss, sub, aud, iat, nbf, exp } = claims;
  if (iss !== issuer) {
    throw forbidden(`the "iss" ${JSON.stringify(issuer)} (set --service-account-issuer of the API server to it)`);
  }
  if (typeof sub !== "string" || !serviceAccount.test(sub)) throw forbidden("service accounts as the subject");
  checkAudience(aud);
  checkAllowedAudience(policy, aud);
  const seconds = Math.floor(now / 1000);
  const begins = [iat, nbf ?? iat];
  if (!begins.every((time) => isSeconds(time) && Math.abs(time - seconds) <= toleranceSeconds)) {
    throw invalidClaims('claims "iat" and "nbf" must be the time of now; compare the clocks');
  }
  if (!isSeconds(exp) || exp <= seconds) throw invalidClaims('claim "exp" must be a time in the future');
  // The second may have begun that the caller has named.
  if (exp > seconds + 1 + maxLifetimeSeconds) throw forbidden(`lifetimes of up to ${maxLifetimeSeconds} seconds`);
}

const isSeconds = (value: unknown): value is number => Number.isSafeInteger(value);
