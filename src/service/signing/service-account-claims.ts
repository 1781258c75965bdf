import { invalidClaims } from "../../base/errors.ts";
import { checkAudience } from "../../sign/token/check-claims.ts";
import { checkClaimNames } from "../../sign/token/check-names.ts";
import { type SignPolicy, checkAllowedAudience, forbidden } from "./policy.ts";
import { readJson } from "./sign-request.ts";

interface AccountRules {
  readonly issuer: string;
  readonly policy: SignPolicy;
  readonly maxLifetimeSeconds: number;
  /** The current time, in epoch milliseconds. */
  readonly now: number;
}

/**
 * Allowed difference from the current time, in seconds. The caller is on the same machine, but it may have waited for a
 * connection.
 */
const toleranceSeconds = 60;

const label = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
/**
 * Matches a service account's subject. Its namespace is a DNS label, and its name is a DNS name.
 *
 * @see RFC 1123 section 2.1
 */
const serviceAccount = new RegExp(`^system:serviceaccount:${label}:(?=.{1,253}$)${label}(?:\\.${label})*$`);

/**
 * Checks that claims are for a Kubernetes service account of this issuer. jwksd signs the claims exactly as the API
 * server composed them, so without this check, any process that can connect could obtain tokens of any other kind.
 *
 * @param payload the claims in base64url
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
    throw forbidden(`the "iss" ${JSON.stringify(issuer)}; set the API server's --service-account-issuer to this value`);
  }
  if (typeof sub !== "string" || !serviceAccount.test(sub)) throw forbidden("service accounts as subjects");
  checkAudience(aud);
  checkAllowedAudience(policy, aud);
  const seconds = Math.floor(now / 1000);
  const startTimes = [iat, nbf ?? iat];
  if (!startTimes.every((time) => isSeconds(time) && Math.abs(time - seconds) <= toleranceSeconds)) {
    throw invalidClaims('the "iat" and "nbf" claims must be the current time; check the clocks');
  }
  if (!isSeconds(exp) || exp <= seconds) throw invalidClaims('the "exp" claim must be a time in the future');
  // By the caller's clock, the next second may have begun already.
  if (exp > seconds + 1 + maxLifetimeSeconds) throw forbidden(`lifetimes of up to ${maxLifetimeSeconds} seconds`);
}

const isSeconds = (value: unknown): value is number => Number.isSafeInteger(value);
