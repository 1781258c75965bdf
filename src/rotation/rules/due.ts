import { advance } from "./advance.ts";
import { type RotationPolicy, announceForMs, rotateEveryMs } from "./policy.ts";
import { type KeyRecord, type KeyUse, activeKey, announcedKey, keyUses, stateSince } from "./records.ts";
import { type TargetRecord, endOfWait, waitOf } from "./waits.ts";

/** The next step of a key. */
export interface DueStep {
  readonly kid: string;
  readonly use: KeyUse;
  /** `announce`: of an active key, that its successor is announced. */
  readonly step: "announce" | "activate" | "remove";
  /** When it is due, in epoch milliseconds, however late it is; `undefined` while its wait has not begun. */
  readonly at: number | undefined;
  /** Since when its wait cannot begin, because a target lacks the step. */
  readonly blockedSince: number | undefined;
}

/** The next steps of all keys that have one. */
export function dueSteps(records: readonly KeyRecord[], policy: RotationPolicy): DueStep[] {
  const announcements = keyUses.flatMap((use): DueStep[] => {
    const { kid, activatedAt } = activeKey(records, use) ?? {};
    if (kid === undefined || activatedAt === undefined || announcedKey(records, use) !== undefined) return [];
    const at = activatedAt + rotateEveryMs(policy) - announceForMs(policy);
    return [{ kid, use, step: "announce", at, blockedSince: undefined }];
  });
  const waits = records.flatMap((record): DueStep[] => {
    if (waitOf(record, policy) === undefined) return [];
    const { kid, use, state } = record;
    const at = endOfWait(record, policy);
    const blockedSince = at === undefined ? stateSince(record) : undefined;
    return [{ kid, use, step: state === "announced" ? "activate" : "remove", at, blockedSince }];
  });
  return [...announcements, ...waits];
}

/** What is needed of a document to tell what is due. */
export interface Planned {
  readonly records: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  readonly targets: readonly TargetRecord[];
}

/** When somebody is to look at a store again, in epoch milliseconds by its clock: at the next step, or now, where a wait has not begun yet. */
export function nextLookAt({ records, policy, targets }: Planned, now: number): number {
  const ahead = advance(records, policy, now, { targets });
  const isWaiting = ahead.due.length === 0 && ahead.records === records && ahead.wakeAt !== Infinity;
  return isWaiting ? ahead.wakeAt : now;
}
