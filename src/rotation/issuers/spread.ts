import { type RotationPolicyOptions, leastPeriodDays, rotationPolicy } from "../rules/policy.ts";
import { issuerKey } from "../store/issuer.ts";

/** Largest share of a period by which an issuer rotates earlier. */
const share = 0.1;

/**
 * Returns the policy of one of many issuers: its period is up to a tenth shorter, always by the same share. Issuers that were created on one day
 * therefore do not rotate in one minute. No period is shorter than the other settings allow.
 *
 * @throws ConfigError see `rotationPolicy`
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
