import { type RotationPolicyOptions, leastPeriodDays, rotationPolicy } from "../rules/policy.ts";
import { issuerKey } from "../store/issuer-hash.ts";

/** Maximum fraction of the rotation period by which an issuer rotates early. */
const share = 0.1;

/**
 * Returns the policy for one of many issuers. Its period is up to a tenth shorter, so that issuers created on the same
 * day do not all rotate in the same minute. For a given issuer, the fraction is always the same. The period is never
 * shorter than the other settings allow.
 *
 * @throws ConfigError, for the same reasons as `rotationPolicy`
 */
export async function spreadPolicy(issuer: string, options?: RotationPolicyOptions): Promise<RotationPolicyOptions> {
  const policy = rotationPolicy(options);
  const longest = policy.rotateEveryDays;
  const shortest = Math.min(longest, Math.max(longest * (1 - share), leastPeriodDays(policy)));
  const part = Number.parseInt((await issuerKey(issuer)).slice(0, 8), 16) / 2 ** 32;
  // In thousandths of a day, for readability.
  const days = Math.ceil((longest - part * (longest - shortest)) * 1_000) / 1_000;
  return { ...policy, rotateEveryDays: Math.min(days, longest) };
}
