import { advance } from "./advance.ts";
import {
  type KeyRecord,
  type KeyUse,
  activeKey,
  announcedKey,
  keyUses,
  liveRecords,
  stateSince,
} from "./key-records.ts";
import { type RotationPolicy, announceForMs, rotateEveryMs } from "./policy.ts";
import { type TargetRecord, endOfWait, waitOf } from "./waits.ts";

/** A key's next step. */
export interface DueStep {
  readonly kid: string;
  readonly use: KeyUse;
  /** The step. `announce` is a step of the active key; it announces the next key. */
  readonly step: "announce" | "activate" | "remove";
  /**
   * Time at which the step is due, in epoch milliseconds. It may be in the past; it is `undefined` until the step's
   * waiting period has begun.
   */
  readonly at: number | undefined;
  /**
   * Time at which the waiting period became blocked because a target had not received the previous step, in epoch
   * milliseconds.
   */
  readonly blockedSince: number | undefined;
}

/** Returns the next step of each key that has one. */
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

/** The parts of a document that determine when steps are due. */
export interface Planned {
  readonly records: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  readonly targets: readonly TargetRecord[];
}

/**
 * Returns the time at which a store must be read again, in epoch milliseconds by its clock: the time of the next step,
 * or the current time if a waiting period has not begun yet. Returns `undefined` if the store need not be read again,
 * because the issuer has been decommissioned and has no keys.
 */
export function nextLookAt({ records, policy, targets }: Planned, now: number): number | undefined {
  if (records.length > 0 && liveRecords(records).length === 0) return undefined;
  const ahead = advance(records, policy, now, { targets });
  const isWaiting = ahead.due.length === 0 && ahead.records === records && ahead.wakeAt !== Infinity;
  return isWaiting ? ahead.wakeAt : now;
}
