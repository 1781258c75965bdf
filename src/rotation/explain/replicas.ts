import { RotationError } from "../../base/errors.ts";
import { durationText, kidText, someOf, timeText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import type { StoreDocument } from "../custody/document.ts";
import { type PresenceRecord, type Processes, revisionsBehind } from "../custody/presence-records.ts";
import { type LiveRecord, isLive, liveRecords, stateSince } from "../rules/key-records.ts";
import { type TargetRecord, targetsBehind, waitOf } from "../rules/waits.ts";

/** The state of a store at one point in time: its document and its running processes. */
export interface StoreView extends Processes {
  readonly document: Pick<StoreDocument, "revision" | "records" | "targets" | "policy" | "commits">;
  /** Time at which the store had this state, in epoch milliseconds by the store's clock. */
  readonly now: number;
}

/** The status of a process, according to its presence record. */
export interface ReplicaStatus {
  readonly id: string;
  readonly name: string;
  /** The process's jwksd version, if the process reports it. */
  readonly version?: string | undefined;
  /** Revision that the process publishes; 0 before it has published anything. */
  readonly revision: number;
  /**
   * Number of revisions that the process is behind, or `undefined` if the store no longer has the process's revision,
   * because an older backup was restored.
   */
  readonly behind: number | undefined;
  /** Kid of the key that the process signs with. */
  readonly kid?: string | undefined;
  /** Whether the process signs. `not now` means that it is set up to sign but cannot, or has just started. */
  readonly signing: "signs" | "publishes only" | "not now";
  /** Time of the process's last check-in, in epoch milliseconds. */
  readonly lastCheckInAt: number;
  /** Time at which the process stops signing unless it checks in again, in epoch milliseconds. */
  readonly staleAt: number;
}

/** The status of a target. Its documents are served even if no process is running. */
export interface TargetStatus extends TargetRecord {
  /** Whether the target has yet to receive a step. If so, the step's waiting period has not begun. */
  readonly isBehind: boolean;
}

/** A waiting period that has not begun. */
export interface WaitStatus {
  readonly kid: string;
  readonly use: "sig" | "enc";
  /** Step that follows the period. */
  readonly action: "activated" | "removed";
  /** Time at which the key entered its current state, in epoch milliseconds. */
  readonly since: number;
  /** Names of the targets that have not received the step that precedes the period. */
  readonly targets: readonly string[];
  /** Sentences that explain why the period has not begun. */
  readonly text: string;
}

/** Sentence that says which processes are never listed. */
export const unlistedText = "Not listed: on-demand processes, and processes that can only read the store.";

/** Reports how many presence records were not read. Returns an empty list if all of them were read. */
export function unreadTexts({ unread }: Pick<Processes, "unread">): string[] {
  if (unread === 0) return [];
  const records = unread === 1 ? "presence record that was" : "presence records that were";
  return [`The store has ${unread.toLocaleString("en")} more ${records} not read.`];
}

export function replicaStatus(presence: PresenceRecord, view: StoreView): ReplicaStatus {
  const { id, name, version, revision, kid, signs } = presence;
  const { document } = view;
  const lastCheckInAt = lastCheckIn(presence, view);
  return {
    id,
    name,
    version,
    revision,
    behind: revisionsBehind(presence, document),
    kid,
    signing: signingOf(kid, signs),
    lastCheckInAt,
    staleAt: lastCheckInAt + document.policy.maxStaleSeconds * 1000,
  };
}

// Limited, because anyone who can write to the store can write a presence record with a future time.
const lastCheckIn = ({ at }: PresenceRecord, { now }: StoreView): number => Math.min(at, now);

function signingOf(kid: string | undefined, signs: boolean): ReplicaStatus["signing"] {
  if (!signs) return "publishes only";
  return kid === undefined ? "not now" : "signs";
}

/** Descriptions of processes that do not sign. */
export const unsignedTexts = {
  "publishes only": "publishes only; it is not set up to sign",
  "not now": "not signing at the moment; its log and /readyz say why",
} as const satisfies Record<Exclude<ReplicaStatus["signing"], "signs">, string>;

/** Describes the revision that a process publishes. */
export function publishesText({ revision, behind }: Pick<ReplicaStatus, "revision" | "behind">): string {
  if (revision === 0) return "nothing yet";
  if (behind === undefined) return `revision ${revision}, which the store no longer has`;
  return behind === 0 ? "the latest" : `${behind} revision${behind === 1 ? "" : "s"} behind`;
}

/** Describes how long ago a process last checked in: "40 s ago". */
export const lastCheckInText = (presence: PresenceRecord, view: StoreView): string =>
  `${durationText(view.now - lastCheckIn(presence, view))} ago`;

/** Reports whether a process publishes a change. @param revision the change's revision */
export function hasCaughtUp(presence: PresenceRecord, revision: number, { document }: StoreView): boolean {
  return presence.revision >= revision && revisionsBehind(presence, document) !== undefined;
}

/** Describes how many replicas have caught up: "2 of 3 have caught up". */
export function caughtUpText(count: number, all: number): string {
  return `${count} of ${all} ${all === 1 ? "has" : "have"} caught up`;
}

/**
 * Explains the effect of a process that is behind: how long it may still publish the previous keys and sign with them.
 */
export function behindText(presence: PresenceRecord, view: StoreView): string {
  const { name, revision, behind, kid, staleAt } = replicaStatus(presence, view);
  const who = `Replica "${printable(name)}", last check-in ${lastCheckInText(presence, view)},`;
  if (revision === 0) return `${who} has just started. It is not ready and publishes nothing yet.`;
  if (behind === undefined) {
    return `${who} publishes revision ${revision}, which the store no longer has. Until this replica is restarted, it refuses to use an older backup of its store.`;
  }
  const { records } = view.document;
  const record = records.find((record) => record.kid === kid);
  const signs = kid === undefined || record?.state === "active" ? "" : ` and sign with "${kidText(kid)}"`;
  const refused =
    signs === "" || (record !== undefined && isLive(record)) ? "" : " Verifiers with the new set reject its tokens.";
  return `${who} may publish the previous keys${signs} until ${timeText(staleAt)} at the latest.${refused}`;
}

export function targetStatus(target: TargetRecord, { document, now }: StoreView): TargetStatus {
  const { records, policy } = document;
  const isBehind = liveRecords(records).some((record) => targetsBehind(record, [target], policy, now).length > 0);
  return { ...target, isBehind };
}

/**
 * Lists the waiting periods that have not begun. Normally, every waiting period of a rotation appears in this list
 * briefly.
 */
export function waitsOf(view: StoreView): WaitStatus[] {
  const { document, now } = view;
  const { records, policy, targets } = document;
  return liveRecords(records).flatMap((record) => {
    const wait = waitOf(record, policy);
    if (wait === undefined || wait.since !== undefined) return [];
    const { kid, use, state } = record;
    const behind = targetsBehind(record, targets, policy, now).map(({ name }) => name);
    const text = `${waitText(record, wait.forMs)} ${causeText(behind, view)}`;
    const action = state === "announced" ? "activated" : "removed";
    return [{ kid, use, action, since: stateSince(record), targets: behind, text }];
  });
}

/** Describes a waiting period that has not begun and the step that follows it. */
function waitText({ use, kid, state }: LiveRecord, forMs: number): string {
  const [step, period] = state === "announced" ? ["becomes active", "propagation"] : ["is removed", "retirement"];
  const key = `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}"`;
  return `${key} ${step} after its ${period} period of ${durationText(forMs)}, which has not begun.`;
}

function causeText(behind: readonly string[], { processes }: StoreView): string {
  if (behind.length > 0) {
    const named = someOf(behind, (name) => `"${printable(name)}"`);
    const [targets, have, them, are] =
      behind.length === 1 ? ["Target", "has", "it", "it is"] : ["Targets", "have", "them", "they are"];
    return `${targets} ${named} ${have} not received the latest change to the key; update ${them} with jwksd publish or, if ${are} no longer in use, run jwksd targets forget.`;
  }
  return processes.length === 0
    ? "It begins when a process reads the store, but none is listed; start jwksd serve."
    : "It begins in a moment, at the next read of the store.";
}

/**
 * Checks that every replica has the new wrapping key, because a replica without that key could no longer read the
 * store.
 * @throws RotationError `ERR_TRANSITION`
 */
export function checkAllHave(wrappingKey: string, view: StoreView): void {
  const lacking = view.processes.filter(({ wrappingKeys }) => !wrappingKeys.includes(wrappingKey));
  const names = someOf(lacking, (record) => {
    const { name, staleAt } = replicaStatus(record, view);
    return `"${printable(name)}" (last check-in ${lastCheckInText(record, view)}; if it is no longer running, it drops off the list at ${timeText(staleAt)})`;
  });
  const problems = [
    ...(lacking.length === 0
      ? []
      : [`these replicas do not have that key: ${names}; add the key to each of them, restart them, and try again`]),
    ...unreadTexts(view).map(
      (text) =>
        `some replicas may be missing from the list. ${text} Running processes remove old records; try again later`,
    ),
  ];
  const intention = `nothing was changed: rewrap would encrypt the store with the wrapping key ${wrappingKey}, but`;
  for (const problem of problems) throw new RotationError("ERR_TRANSITION", `${intention} ${problem}`);
}
