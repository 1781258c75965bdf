import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import { type Advance, type View, advance } from "../rules/advance.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { liveRecords, mapLive } from "../rules/records.ts";
import { type Replicas, endOfWait, waitOf, withWaitSince } from "../rules/waits.ts";
import type { KeyRecord } from "../store/store.ts";
import type { Clocks } from "./clocks.ts";

/** How soon a key that could not sign is tried again. */
const heldBackMs = 60_000;

/** Plans the steps of this replica by its clocks. Leaves out announced keys that could not sign when their wait was over. */
export function createSchedule(policy: RotationPolicy, clocks: Clocks, clock: Clock) {
  /** Announced keys that could not sign when their wait was over, and when they were tried. */
  const heldBack = new Map<string, Moment<"monotonic">>();
  /** Keys whose step this replica tried to take when it was due. Such a step was not missed, however late it is taken. */
  const tried = new Set<string>();

  const dueNow = (records: readonly KeyRecord[], now: number): readonly KeyRecord[] =>
    liveRecords(records).filter((record) => (endOfWait(record, policy) ?? Infinity) <= now);

  const retryInMs = (triedAt: Moment<"monotonic">): number => heldBackMs - msBetween(triedAt, monotonicNow(clock));

  function plan(records: readonly KeyRecord[], now: number, replicas: Replicas = { revision: 0, leases: [] }): Advance {
    const cannotSign = new Set([...heldBack].flatMap(([kid, at]) => (retryInMs(at) > 0 ? [kid] : [])));
    const leftMs: View["leftMs"] = (record, wait) => clocks.leftMs(record, wait, now);
    return advance(records, policy, now, { replicas, cannotSign, tried, leftMs });
  }

  return {
    plan,

    /**
     * How long it is until a step is due, in milliseconds; 0 while one is due, however long ago it became due and whatever was attempted
     * since.
     */
    dueInMs(records: readonly KeyRecord[]): number {
      const now = clocks.now();
      // Only retries in the future count. A retry that is due is up to the plan, which may have found that the key still waits.
      const retries = [...heldBack.values()].map(retryInMs).filter((ms) => ms > 0);
      const ahead = plan(records, now);
      if (ahead.records !== records || ahead.due.length > 0) return 0;
      return Math.max(Math.min(ahead.wakeAt - now, ...retries), 0);
    },

    holdBack(kid: string): void {
      heldBack.set(kid, monotonicNow(clock));
      tried.add(kid);
    },

    /** Notes that the steps that are due could not be taken. */
    noteTried(records: readonly KeyRecord[]): void {
      for (const { kid } of dueNow(records, clocks.now())) tried.add(kid);
    },

    /** Forgets keys whose step is not due any more. */
    forgetTaken(records: readonly KeyRecord[], now: number): void {
      const due = new Set(dueNow(records, now).map(({ kid }) => kid));
      for (const kid of tried) if (!due.has(kid)) tried.delete(kid);
      for (const kid of heldBack.keys()) if (!due.has(kid)) heldBack.delete(kid);
    },

    /**
     * The records with each wait beginning later that the store's clock makes shorter than this process has seen it, by more than the skew. That
     * clock was set ahead meanwhile, and whoever looks at the store for the first time after that cannot know of it.
     */
    withWaitsAsSeen(records: readonly KeyRecord[], now: number): readonly KeyRecord[] {
      return mapLive(records, (record) => {
        const { since, forMs = 0 } = waitOf(record, policy) ?? {};
        if (since === undefined) return record;
        const leftMs = clocks.leftMs(record, { since, forMs }, now);
        const isShorter = since + forMs - now < leftMs - policy.clockSkewSeconds * 1000;
        return isShorter ? withWaitSince(record, now + leftMs - forMs) : record;
      });
    },
  };
}

export type Schedule = ReturnType<typeof createSchedule>;
