import { cacheControl, cacheDirectives } from "../../base/cache-control.ts";
import { ConfigError } from "../../base/errors.ts";
import { type Optional, type Rules, checkOptions, number } from "../../base/options.ts";
import type { KeyUse } from "./key-records.ts";

/** Settings for key rotation. */
export interface RotationPolicyOptions {
  /** How long a key is active, in days; at most 36,500. Default: 90. */
  readonly rotateEveryDays?: Optional<number>;
  /** How long a key is published before it starts signing, in seconds. Default: 86,400 (a day). */
  readonly announceForSeconds?: Optional<number>;
  /** Maximum lifetime of the tokens that the keys sign, in seconds. Default: 3,600. */
  readonly maxTokenLifetimeSeconds?: Optional<number>;
  /**
   * Maximum difference between the clocks of processes, the store and verifiers, in seconds. It is at least 1, because
   * reading the store's clock takes time. Default: 300.
   */
  readonly clockSkewSeconds?: Optional<number>;
  /**
   * How long caches may keep a set beyond what Cache-Control allows, in seconds. Some caches, such as nginx, do not
   * send `Age`, so the next cache starts counting from zero. Default: 7,200.
   */
  readonly cacheSlackSeconds?: Optional<number>;
  /**
   * How long a process uses what it has read from the store, in seconds. A process that cannot reach the store for that
   * long stops signing and is not ready. Every waiting period includes this time, because a process may be unaware of a
   * step for that long. Default: 3,600.
   */
  readonly maxStaleSeconds?: Optional<number>;
}

/** A checked policy. */
export type RotationPolicy = { readonly [Name in keyof RotationPolicyOptions]-?: number };

const long = cacheDirectives(cacheControl.long);
const rotation = cacheDirectives(cacheControl.rotation);

/** `max-age` of a set in each of the origin's cache modes, in seconds. */
export const maxAgeSeconds = { long: long.maxAge ?? 0, rotation: rotation.maxAge ?? 0 };
/**
 * How long a cache may serve a set in each mode, in seconds: `max-age` plus `stale-while-revalidate` (RFC 5861 section
 * 3).
 */
export const cachedForSeconds = {
  long: maxAgeSeconds.long + long.whileRevalidated,
  rotation: maxAgeSeconds.rotation + rotation.whileRevalidated,
};

const secondsPerDay = 86_400;
/**
 * Limit that keeps a plan's dates within the range of `Date`. The other durations need no limit, because each of them
 * is part of the period that `rotateEveryDays` sets.
 */
const maxDays = 36_500;

/** A policy's default values. */
export const policyDefaults: RotationPolicy = {
  rotateEveryDays: 90,
  announceForSeconds: 86_400,
  maxTokenLifetimeSeconds: 3600,
  clockSkewSeconds: 300,
  cacheSlackSeconds: 7200,
  maxStaleSeconds: 3600,
};

/** The names of a policy's members. */
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
 * Checks a policy against cache lifetimes: a new key must have reached every cache before it signs its first token, an
 * old key must be published until its last token has expired, and one rotation must end before the next begins.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_POLICY_INVALID`
 */
export function rotationPolicy(options: RotationPolicyOptions = {}): RotationPolicy {
  const given = checkOptions(options, rules, "member of the rotation policy") as Partial<RotationPolicy>;
  const policy: RotationPolicy = Object.freeze({ ...policyDefaults, ...given });
  // Reports all faults together, so that the next attempt can succeed.
  const faults = [faultOfAnnouncement(policy), faultOfPeriod(policy)].filter((fault) => fault !== undefined);
  if (faults.length > 0) throw new ConfigError("ERR_POLICY_INVALID", faults.join("; "));
  return policy;
}

/** Returns only the policy members that this version knows. */
export function knownOf(policy: RotationPolicy): RotationPolicy {
  return Object.fromEntries(policyNames.map((name) => [name, policy[name]])) as RotationPolicy;
}

function faultOfAnnouncement(policy: RotationPolicy): string | undefined {
  const { announceForSeconds, maxStaleSeconds, cacheSlackSeconds, clockSkewSeconds } = policy;
  const least = leastAnnouncementSeconds(policy);
  if (announceForSeconds >= least) return undefined;
  return (
    `announceForSeconds is ${announceForSeconds} but must be at least ${least}: a process may publish a set without the new key for ` +
    `${maxStaleSeconds} s (maxStaleSeconds), and a cache may keep that set for ${cachedForSeconds.long} s, plus ` +
    `${cacheSlackSeconds} s (cacheSlackSeconds) and ${clockSkewSeconds} s (clockSkewSeconds)`
  );
}

function faultOfPeriod(policy: RotationPolicy): string | undefined {
  const { rotateEveryDays } = policy;
  if (rotateEveryDays > maxDays) return `rotateEveryDays is ${rotateEveryDays} but must be at most ${maxDays}`;
  const { announceForSeconds, retireForSeconds, leastAnnouncement } = rotationSeconds(policy);
  const leastDays = leastPeriodDays(policy);
  if (rotateEveryDays >= leastDays) return undefined;
  const longest = Math.floor(rotateEveryDays * secondsPerDay - retireForSeconds);
  const other = longest < leastAnnouncement ? "" : `, or announceForSeconds must be at most ${longest}`;
  return (
    `rotateEveryDays is ${rotateEveryDays} but must be at least ${Math.ceil(leastDays * 100) / 100} (rounded up to whole days: ` +
    `${Math.ceil(leastDays)})${other}: one rotation takes ${announceForSeconds} s (announceForSeconds), plus ${retireForSeconds} s during ` +
    "which the old key retires, and must end before the next rotation begins"
  );
}

/** Returns the lengths of the parts of one rotation, in seconds. */
function rotationSeconds(policy: RotationPolicy) {
  const leastAnnouncement = leastAnnouncementSeconds(policy);
  const announceForSeconds = Math.max(policy.announceForSeconds, leastAnnouncement);
  // An encryption key's retirement period is longer than a signing key's.
  return { announceForSeconds, retireForSeconds: retireForMs(policy, "enc") / 1000, leastAnnouncement };
}

/** Returns the shortest `rotateEveryDays` that the other members allow. */
export function leastPeriodDays(policy: RotationPolicy): number {
  const { announceForSeconds, retireForSeconds } = rotationSeconds(policy);
  return (announceForSeconds + retireForSeconds) / secondsPerDay;
}

/** Returns how long it takes until every process publishes a key and every cache has it, in seconds. */
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
 * Returns how long a key is kept after its successor has become active, in milliseconds. A process that has not read
 * the change signs with the old key for up to `maxStaleSeconds`, and the last token is valid for
 * `maxTokenLifetimeSeconds`. An encryption key is kept longer, because caches still serve it to relying parties.
 */
export function retireForMs(policy: RotationPolicy, use: KeyUse): number {
  const { maxStaleSeconds, maxTokenLifetimeSeconds, clockSkewSeconds, cacheSlackSeconds } = policy;
  const cached = use === "enc" ? cachedForSeconds.long + cacheSlackSeconds : 0;
  // The skew counts twice: once between the last signing process and the verifier, and once between the processes that
  // begin and end the waiting period.
  return (maxStaleSeconds + maxTokenLifetimeSeconds + 2 * clockSkewSeconds + cached) * 1000;
}
