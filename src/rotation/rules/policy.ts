import { type Rules, checkOptions, number } from "../../base/options.ts";
import { ConfigError } from "../../base/errors.ts";
import type { KeyUse } from "../store/store.ts";

/** How keys rotate. */
export interface RotationPolicyOptions {
  /** How long a key is active, in days, 36,500 at most. Default: 90. */
  readonly rotateEveryDays?: number | null | undefined;
  /** How long a key is published before it signs, in seconds. Default: 86,400 (a day). */
  readonly announceForSeconds?: number | null | undefined;
  /** The longest lifetime of any token that the keys sign, in seconds. Default: 3,600. */
  readonly maxTokenLifetimeSeconds?: number | null | undefined;
  /** How far apart the clocks of providers, their store and verifiers may be, in seconds; 1 at least, because a store takes time to answer. Default: 300. */
  readonly clockSkewSeconds?: number | null | undefined;
  /**
   * For how much longer than Cache-Control allows caches may keep a copy, in seconds. Behind a cache that sends no `Age`, such as
   * nginx, the next cache counts from the beginning again. Default: 7,200.
   */
  readonly cacheSlackSeconds?: number | null | undefined;
  /**
   * For how long the others rely on a silent replica, in seconds. A replica that cannot reach the store stops signing before that.
   * Default: 3,600.
   */
  readonly leaseSeconds?: number | null | undefined;
}

/** A checked policy. */
export type RotationPolicy = { readonly [Name in keyof RotationPolicyOptions]-?: number };

/** For how long a cache may serve a copy, in seconds, by the cache mode at the origin: `max-age` plus `stale-while-revalidate` (RFC 5861 section 3). */
export const cachedForSeconds = { long: 3600 + 3600, rotation: 300 } as const;

/** How soon after its read of the store a process without a lease signs, in seconds. */
export const signWithinSeconds = 5;

/** For how long a key that was replaced may still sign, in seconds, so that requests end which began with it. */
export const drainSeconds = 30;

const secondsPerDay = 86_400;
/** Keeps the dates of a plan within what `Date` can hold. All other durations are parts of `rotateEveryDays`. */
const maxDays = 36_500;

/** What a policy says of what it is not given. */
export const policyDefaults: RotationPolicy = {
  rotateEveryDays: 90,
  announceForSeconds: 86_400,
  maxTokenLifetimeSeconds: 3600,
  clockSkewSeconds: 300,
  cacheSlackSeconds: 7200,
  leaseSeconds: 3600,
};

/** The names of its members. */
export const policyNames = Object.keys(policyDefaults) as readonly (keyof RotationPolicy)[];

const rules: Rules<RotationPolicyOptions> = {
  rotateEveryDays: number(0),
  announceForSeconds: number(0),
  maxTokenLifetimeSeconds: number(1),
  clockSkewSeconds: number(1),
  cacheSlackSeconds: number(0),
  leaseSeconds: number(1),
};

/**
 * Checks a policy against the arithmetic of caches: a new key must have reached every cache before the first token bears it, an old
 * one must be published for as long as its last token is valid, and one rotation must be over before the next one begins.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_POLICY_INVALID`
 */
export function rotationPolicy(options: RotationPolicyOptions = {}): RotationPolicy {
  const given = checkOptions(options, rules, "member of the rotation policy") as Partial<RotationPolicy>;
  const policy: RotationPolicy = Object.freeze({ ...policyDefaults, ...given });
  // All at once, so that the next try has the values that work.
  const faults = [faultOfAnnouncement(policy), faultOfPeriod(policy)].filter((fault) => fault !== undefined);
  if (faults.length > 0) throw new ConfigError("ERR_POLICY_INVALID", faults.join("; "));
  return policy;
}

function faultOfAnnouncement(policy: RotationPolicy): string | undefined {
  const { announceForSeconds, cacheSlackSeconds, clockSkewSeconds } = policy;
  const least = leastAnnouncementSeconds(policy);
  if (announceForSeconds >= least) return undefined;
  return (
    `announceForSeconds is ${announceForSeconds}, and must be at least ${least}: a cache may keep a set without the new key for ` +
    `${cachedForSeconds.long} s, and cacheSlackSeconds (${cacheSlackSeconds}) and clockSkewSeconds (${clockSkewSeconds}) come on top`
  );
}

function faultOfPeriod(policy: RotationPolicy): string | undefined {
  const { rotateEveryDays } = policy;
  if (rotateEveryDays > maxDays) return `rotateEveryDays is ${rotateEveryDays}, and may be ${maxDays} at most`;
  const leastAnnouncement = leastAnnouncementSeconds(policy);
  const announceForSeconds = Math.max(policy.announceForSeconds, leastAnnouncement);
  // Longer than that of a signing key with its drain.
  const retireForSeconds = retireForMs(policy, "enc") / 1000;
  const leastDays = (announceForSeconds + retireForSeconds) / secondsPerDay;
  if (rotateEveryDays >= leastDays) return undefined;
  const longest = Math.floor(rotateEveryDays * secondsPerDay - retireForSeconds);
  const other = longest < leastAnnouncement ? "" : `, or announceForSeconds at most ${longest}`;
  return (
    `rotateEveryDays is ${rotateEveryDays}, and must be at least ${Math.ceil(leastDays * 100) / 100} (as a whole number: ` +
    `${Math.ceil(leastDays)})${other}: one rotation takes announceForSeconds (${announceForSeconds}) and ${retireForSeconds} s in ` +
    "which the old key leaves, and must be over before the next one begins"
  );
}

/** How long it takes until every cache knows a key, in seconds. */
export function leastAnnouncementSeconds(policy: RotationPolicy): number {
  return cachedForSeconds.long + policy.cacheSlackSeconds + policy.clockSkewSeconds;
}

export function rotateEveryMs(policy: RotationPolicy): number {
  return policy.rotateEveryDays * secondsPerDay * 1000;
}

export function announceForMs(policy: RotationPolicy): number {
  return policy.announceForSeconds * 1000;
}

/**
 * How long a key is kept after its last use. A signing key is kept until its last token has expired for every verifier. An encryption key is
 * kept for the same time, and longer: until no cache gives it to relying parties any more.
 */
export function retireForMs(policy: RotationPolicy, use: KeyUse): number {
  const { maxTokenLifetimeSeconds, clockSkewSeconds, cacheSlackSeconds } = policy;
  const cached = use === "enc" ? cachedForSeconds.long + cacheSlackSeconds : 0;
  // One skew for the clocks of the last signing replica and of the verifier, one for the clocks that begin and end the wait.
  return (signWithinSeconds + maxTokenLifetimeSeconds + 2 * clockSkewSeconds + cached) * 1000;
}
