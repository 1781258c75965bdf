import { type Optional, type Rules, checkOptions, number } from "../../base/options.ts";
import { ConfigError } from "../../base/errors.ts";
import type { KeyUse } from "./records.ts";

/** How keys rotate. */
export interface RotationPolicyOptions {
  /** How long a key is active, in days, 36,500 at most. Default: 90. */
  readonly rotateEveryDays?: Optional<number>;
  /** How long a key is published before it signs, in seconds. Default: 86,400 (a day). */
  readonly announceForSeconds?: Optional<number>;
  /** The longest lifetime of any token that the keys sign, in seconds. Default: 3,600. */
  readonly maxTokenLifetimeSeconds?: Optional<number>;
  /** How far apart the clocks of providers, their store and verifiers may be, in seconds; 1 at least, because a store takes time to answer. Default: 300. */
  readonly clockSkewSeconds?: Optional<number>;
  /**
   * For how much longer than Cache-Control allows caches may keep a copy, in seconds. Behind a cache that sends no `Age`, such as
   * nginx, the next cache counts from the beginning again. Default: 7,200.
   */
  readonly cacheSlackSeconds?: Optional<number>;
  /**
   * For how long a process uses what it has read of the store, in seconds. A process that cannot reach the store stops signing then, and is not
   * ready. Every wait counts this time, because a process may know nothing of a step for so long. Default: 3,600.
   */
  readonly maxStaleSeconds?: Optional<number>;
}

/** A checked policy. */
export type RotationPolicy = { readonly [Name in keyof RotationPolicyOptions]-?: number };

/** For how long a cache may serve a copy, in seconds, by the cache mode at the origin: `max-age` plus `stale-while-revalidate` (RFC 5861 section 3). */
export const cachedForSeconds = { long: 3600 + 3600, rotation: 300 } as const;
/** The part of that which `max-age` says, in seconds. */
export const maxAgeSeconds = { long: 3600, rotation: 300 } as const;

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
  maxStaleSeconds: 3600,
};

/** The names of its members. */
export const policyNames = Object.keys(policyDefaults) as readonly (keyof RotationPolicy)[];

const rules: Rules<RotationPolicyOptions> = {
  rotateEveryDays: number(0),
  announceForSeconds: number(0),
  maxTokenLifetimeSeconds: number(1),
  clockSkewSeconds: number(1),
  cacheSlackSeconds: number(0),
  maxStaleSeconds: number(1),
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

/** The members of a policy that this version knows. */
export function knownOf(policy: RotationPolicy): RotationPolicy {
  return Object.fromEntries(policyNames.map((name) => [name, policy[name]])) as RotationPolicy;
}

function faultOfAnnouncement(policy: RotationPolicy): string | undefined {
  const { announceForSeconds, maxStaleSeconds, cacheSlackSeconds, clockSkewSeconds } = policy;
  const least = leastAnnouncementSeconds(policy);
  if (announceForSeconds >= least) return undefined;
  return (
    `announceForSeconds is ${announceForSeconds}, and must be at least ${least}: a process may publish a set without the new key for ` +
    `maxStaleSeconds (${maxStaleSeconds}), a cache may keep that set for ${cachedForSeconds.long} s, and cacheSlackSeconds ` +
    `(${cacheSlackSeconds}) and clockSkewSeconds (${clockSkewSeconds}) come on top`
  );
}

function faultOfPeriod(policy: RotationPolicy): string | undefined {
  const { rotateEveryDays } = policy;
  if (rotateEveryDays > maxDays) return `rotateEveryDays is ${rotateEveryDays}, and may be ${maxDays} at most`;
  const { announceForSeconds, retireForSeconds, leastAnnouncement } = rotationSeconds(policy);
  const leastDays = leastPeriodDays(policy);
  if (rotateEveryDays >= leastDays) return undefined;
  const longest = Math.floor(rotateEveryDays * secondsPerDay - retireForSeconds);
  const other = longest < leastAnnouncement ? "" : `, or announceForSeconds at most ${longest}`;
  return (
    `rotateEveryDays is ${rotateEveryDays}, and must be at least ${Math.ceil(leastDays * 100) / 100} (as a whole number: ` +
    `${Math.ceil(leastDays)})${other}: one rotation takes announceForSeconds (${announceForSeconds}) and ${retireForSeconds} s in ` +
    "which the old key leaves, and must be over before the next one begins"
  );
}

/** How long the parts of one rotation take. */
function rotationSeconds(policy: RotationPolicy) {
  const leastAnnouncement = leastAnnouncementSeconds(policy);
  const announceForSeconds = Math.max(policy.announceForSeconds, leastAnnouncement);
  // Longer than that of a signing key.
  return { announceForSeconds, retireForSeconds: retireForMs(policy, "enc") / 1000, leastAnnouncement };
}

/** The shortest `rotateEveryDays` that the other members allow. */
export function leastPeriodDays(policy: RotationPolicy): number {
  const { announceForSeconds, retireForSeconds } = rotationSeconds(policy);
  return (announceForSeconds + retireForSeconds) / secondsPerDay;
}

/** How long it takes until every process publishes a key, and every cache knows it, in seconds. */
export function leastAnnouncementSeconds(policy: RotationPolicy): number {
  return policy.maxStaleSeconds + cachedForSeconds.long + policy.cacheSlackSeconds + policy.clockSkewSeconds;
}

export function rotateEveryMs(policy: RotationPolicy): number {
  return policy.rotateEveryDays * secondsPerDay * 1000;
}

export function announceForMs(policy: RotationPolicy): number {
  return policy.announceForSeconds * 1000;
}

/**
 * How long a key is kept after its successor took its place. A process that has not read of that signs with it for `maxStaleSeconds`, and
 * its last token then lives for `maxTokenLifetimeSeconds`. Caches give an encryption key to relying parties for longer.
 */
export function retireForMs(policy: RotationPolicy, use: KeyUse): number {
  const { maxStaleSeconds, maxTokenLifetimeSeconds, clockSkewSeconds, cacheSlackSeconds } = policy;
  const cached = use === "enc" ? cachedForSeconds.long + cacheSlackSeconds : 0;
  // One skew for the clocks of the last process that signed and of the verifier, one for the clocks that begin and end the wait.
  return (maxStaleSeconds + maxTokenLifetimeSeconds + 2 * clockSkewSeconds + cached) * 1000;
}
