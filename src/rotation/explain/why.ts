import { durationText, timeText } from "../../base/format.ts";
import {
  type RotationPolicy,
  announceForMs,
  cachedForSeconds,
  leastAnnouncementSeconds,
  retireForMs,
  rotateEveryMs,
} from "../rules/policy.ts";
import { type KeyEvent, type KeyRecord, type KeyUse, activeKey, liveRecords } from "../rules/records.ts";

/** Why a step is taken when it is. */
export interface Why {
  /** In words. */
  readonly reason: string;
  /** The numbers of the policy behind the date. */
  readonly bound: string;
}

/** @param before the records before the step */
export function whyOf(
  { type, use = "sig", kid, at, reason }: KeyEvent,
  before: readonly KeyRecord[],
  policy: RotationPolicy,
): Why {
  const record = liveRecords(before).find((record) => record.kid === kid);
  const active = activeKey(before, use);
  if (active === undefined && (type === "announced" || type === "activated")) {
    return {
      reason: "it is the first key of its use, so it is active at once",
      bound: "no bound: no cache holds a set",
    };
  }
  switch (type) {
    case "announced":
      return whyAnnounced(use, at, active?.activatedAt ?? at, policy);
    case "activated":
      return {
        reason: `every process has published it for ${durationText(at - (record?.publishedAt ?? at))}, so every cache knows it`,
        bound:
          `announceForSeconds ${Math.max(policy.announceForSeconds, record?.announceForSeconds ?? 0)}, at least ` +
          `${leastAnnouncementSeconds(policy)} = maxStaleSeconds ${policy.maxStaleSeconds} + ${cachedBound(policy)} + ` +
          `clockSkewSeconds ${policy.clockSkewSeconds}`,
      };
    case "retired":
      return { reason: "the next key takes its place", bound: "the moment at which the next key becomes active" };
    case "removed":
      return whyRemoved(use, record?.retireForSeconds ?? 0, policy);
    default:
      return {
        reason,
        bound: `clockSkewSeconds ${policy.clockSkewSeconds}, by which the clocks of processes may differ`,
      };
  }
}

const cachedBound = ({ cacheSlackSeconds }: RotationPolicy): string =>
  `${cachedForSeconds.long} s in caches + cacheSlackSeconds ${cacheSlackSeconds}`;

/** @param since when the active key became active */
function whyAnnounced(use: KeyUse, at: number, since: number, policy: RotationPolicy): Why {
  const isLate = at > since + rotateEveryMs(policy) - announceForMs(policy);
  return {
    reason: `${use === "sig" ? "it signs" : "it takes over"} from ${timeText(at + announceForMs(policy))} on, and every cache must know it by then`,
    bound:
      `rotateEveryDays ${policy.rotateEveryDays} after ${timeText(since)}, when the active key became active, less ` +
      `announceForSeconds ${policy.announceForSeconds}${isLate ? "; that is past, so it is due at once" : ""}`,
  };
}

/** @param noted the longest retirement of any policy, in seconds */
function whyRemoved(use: KeyUse, noted: number, policy: RotationPolicy): Why {
  const { maxStaleSeconds, maxTokenLifetimeSeconds, clockSkewSeconds } = policy;
  const least = retireForMs(policy, use) / 1000;
  const sum =
    `maxStaleSeconds ${maxStaleSeconds} + maxTokenLifetimeSeconds ${maxTokenLifetimeSeconds} + 2 * clockSkewSeconds ` +
    `${clockSkewSeconds}${use === "sig" ? "" : ` + ${cachedBound(policy)}`}`;
  const since = "s after the next key took its place";
  return {
    reason:
      use === "sig"
        ? "the last token that it signed has expired for every verifier"
        : "no cache gives it to relying parties any more, and what was encrypted to it has expired",
    bound:
      noted > least ? `${noted} ${since}, by an earlier policy; this policy: ${least}` : `${least} ${since} = ${sum}`,
  };
}
