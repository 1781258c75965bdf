import { durationText, timeText } from "../../base/format.ts";
import { type AuditEvent, type KeyRecord, type KeyUse, activeKey, liveRecords } from "../rules/key-records.ts";
import {
  type RotationPolicy,
  announceForMs,
  cachedForSeconds,
  leastAnnouncementSeconds,
  retireForMs,
  rotateEveryMs,
} from "../rules/policy.ts";

/** The reason why a step is due at a given time. */
export interface Why {
  /** The reason as a clause. */
  readonly reason: string;
  /** The durations from the policy that, added together, determine when the step is due. */
  readonly bound: string;
}

/** Explains why a step is due when it is. @param before the records before the step */
export function whyOf(
  { type, use = "sig", kid, at, reason }: AuditEvent,
  before: readonly KeyRecord[],
  policy: RotationPolicy,
): Why {
  const record = liveRecords(before).find((record) => record.kid === kid);
  const active = activeKey(before, use);
  if (active === undefined && (type === "announced" || type === "activated")) {
    return {
      reason: "it is the first key for its use, so it is active immediately",
      bound: "none, because no cache has a set yet",
    };
  }
  switch (type) {
    case "announced":
      return whyAnnounced(use, at, active?.activatedAt ?? at, policy);
    case "activated":
      return {
        reason: `every process has been publishing it for ${durationText(at - (record?.publishedAt ?? at))}, so every cache has it`,
        bound:
          `announceForSeconds ${Math.max(policy.announceForSeconds, record?.announceForSeconds ?? 0)}, at least ` +
          `${leastAnnouncementSeconds(policy)} = maxStaleSeconds ${policy.maxStaleSeconds} + ${cachedBound(policy)} + ` +
          `clockSkewSeconds ${policy.clockSkewSeconds}`,
      };
    case "retired":
      return { reason: "the next key replaces it", bound: "the time at which the next key becomes active" };
    case "removed":
      return whyRemoved(use, record?.retireForSeconds ?? 0, policy);
    default:
      return {
        reason,
        bound: `clockSkewSeconds ${policy.clockSkewSeconds}, the allowed difference between the processes' clocks`,
      };
  }
}

const cachedBound = ({ cacheSlackSeconds }: RotationPolicy): string =>
  `${cachedForSeconds.long} s in caches + cacheSlackSeconds ${cacheSlackSeconds}`;

/** @param since time at which the active key became active */
function whyAnnounced(use: KeyUse, at: number, since: number, policy: RotationPolicy): Why {
  const isLate = at > since + rotateEveryMs(policy) - announceForMs(policy);
  return {
    reason: `it ${use === "sig" ? "starts signing at" : "becomes active at"} ${timeText(at + announceForMs(policy))}, and every cache must have it by then`,
    bound:
      `rotateEveryDays ${policy.rotateEveryDays} after ${timeText(since)}, when the active key became active, minus ` +
      `announceForSeconds ${policy.announceForSeconds}${isLate ? "; that is in the past, so the step is due now" : ""}`,
  };
}

/** @param noted longest retirement period that any policy has set during the key's life, in seconds */
function whyRemoved(use: KeyUse, noted: number, policy: RotationPolicy): Why {
  const { maxStaleSeconds, maxTokenLifetimeSeconds, clockSkewSeconds } = policy;
  const least = retireForMs(policy, use) / 1000;
  const sum =
    `maxStaleSeconds ${maxStaleSeconds} + maxTokenLifetimeSeconds ${maxTokenLifetimeSeconds} + 2 * clockSkewSeconds ` +
    `${clockSkewSeconds}${use === "sig" ? "" : ` + ${cachedBound(policy)}`}`;
  const since = "s after the next key replaced it";
  return {
    reason:
      use === "sig"
        ? "the last token that it signed has expired for every verifier"
        : "caches no longer serve it to relying parties, and all data encrypted to it has expired",
    bound:
      noted > least
        ? `${noted} ${since}, under an earlier policy; under this one: ${least}`
        : `${least} ${since} = ${sum}`,
  };
}
