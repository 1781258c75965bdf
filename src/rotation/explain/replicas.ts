import { printable } from "../../base/printable.ts";
import type { StoreDocument } from "../custody/document.ts";
import { type PresenceRecord, type Processes, revisionsBehind } from "../custody/presence.ts";
import { durationText, kidText, someOf, timeText } from "../../base/format.ts";
import { type LiveRecord, isLive, liveRecords, stateSince } from "../rules/records.ts";
import { type TargetRecord, targetsBehind, waitOf } from "../rules/waits.ts";

/** A store at one moment: its document, and the processes that live. */
export interface StoreView extends Processes {
  readonly document: Pick<StoreDocument, "revision" | "records" | "targets" | "policy" | "commits">;
  /** In epoch milliseconds, by the clock of the store. */
  readonly now: number;
}

/** A process, as its line in the store shows it. */
export interface ReplicaStatus {
  readonly id: string;
  readonly name: string;
  /** The version of jwksd, where the process says it. */
  readonly version?: string | undefined;
  /** The revision that the process publishes; 0 for none yet. */
  readonly revision: number;
  /** By how many revisions; `undefined` where the store no longer has that revision, because an older backup was restored. */
  readonly behind: number | undefined;
  /** The kid with which it signs. */
  readonly kid?: string | undefined;
  /** `not now`: it is set up to sign, and cannot, or has just started. */
  readonly signing: "signs" | "publishes only" | "not now";
  readonly lastCheckInAt: number;
  /** When it stops signing, unless it has another word with the store before. */
  readonly staleAt: number;
}

/** A target of the documents that is served without a process. */
export interface TargetStatus extends TargetRecord {
  /** Whether it lacks a step, whose wait therefore has not begun. */
  readonly isBehind: boolean;
}

/** A step whose wait has not begun. */
export interface WaitStatus {
  readonly kid: string;
  readonly use: "sig" | "enc";
  readonly action: "activated" | "removed";
  /** Since when the wait cannot begin. */
  readonly since: number;
  /** Names of the targets that lack the step. */
  readonly targets: readonly string[];
  readonly text: string;
}

/** What no list of processes shows. */
export const unlistedText = "Not listed: processes on demand, and those that may only read the store.";

/** What it means that not all presence records were read; nothing if they were. */
export function unreadTexts({ unread }: Pick<Processes, "unread">): string[] {
  if (unread === 0) return [];
  const records = unread === 1 ? "presence record, which was" : "presence records, which were";
  return [`The store has ${unread.toLocaleString("en")} more ${records} not read.`];
}

export function replicaStatus(line: PresenceRecord, view: StoreView): ReplicaStatus {
  const { id, name, version, revision, kid, signs } = line;
  const { document } = view;
  const lastCheckInAt = lastCheckIn(line, view);
  return {
    id,
    name,
    version,
    revision,
    behind: revisionsBehind(line, document),
    kid,
    signing: signingOf(kid, signs),
    lastCheckInAt,
    staleAt: lastCheckInAt + document.policy.maxStaleSeconds * 1000,
  };
}

/** Anybody who can write the store can write a line, and its time. */
const lastCheckIn = ({ at }: PresenceRecord, { now }: StoreView): number => Math.min(at, now);

function signingOf(kid: string | undefined, signs: boolean): ReplicaStatus["signing"] {
  if (!signs) return "publishes only";
  return kid === undefined ? "not now" : "signs";
}

/** What it means that a process signs with no key. */
export const unsignedTexts = {
  "publishes only": "publishes; it is not set up to sign",
  "not now": "does not sign now; its log and /readyz say why",
} as const satisfies Record<Exclude<ReplicaStatus["signing"], "signs">, string>;

/** What a process publishes, in words. */
export function publishesText({ revision, behind }: Pick<ReplicaStatus, "revision" | "behind">): string {
  if (revision === 0) return "nothing yet";
  if (behind === undefined) return `revision ${revision}, which the store no longer has`;
  return behind === 0 ? "the newest" : `${behind} revision${behind === 1 ? "" : "s"} behind`;
}

/** How long ago a process had its last word with the store: "40 s ago". */
export const lastWordText = (line: PresenceRecord, view: StoreView): string =>
  `${durationText(view.now - lastCheckIn(line, view))} ago`;

/** Whether a process publishes a change. @param revision that of the change */
export function hasFollowed(line: PresenceRecord, revision: number, { document }: StoreView): boolean {
  return line.revision >= revision && revisionsBehind(line, document) !== undefined;
}

/** "2 of 3 follow" */
export function followText(following: number, all: number): string {
  return `${following} of ${all} ${all === 1 ? "follows" : "follow"}`;
}

/** What it means that a process does not publish a change: until when it may publish and sign with the previous keys. */
export function lateText(line: PresenceRecord, view: StoreView): string {
  const { name, revision, behind, kid, staleAt } = replicaStatus(line, view);
  const who = `Replica "${printable(name)}", last word ${lastWordText(line, view)},`;
  if (revision === 0) return `${who} has just started. It is not ready, and publishes nothing yet.`;
  if (behind === undefined) {
    return `${who} publishes revision ${revision}, which the store no longer has. It refuses an older backup of its store until it is restarted.`;
  }
  const { records } = view.document;
  const record = records.find((record) => record.kid === kid);
  const signs = kid === undefined || record?.state === "active" ? "" : `, and sign with "${kidText(kid)}"`;
  const refused =
    signs === "" || (record !== undefined && isLive(record)) ? "" : " Verifiers with the new set refuse such tokens.";
  return `${who} may publish the previous keys${signs}, until ${timeText(staleAt)} at most.${refused}`;
}

export function targetStatus(target: TargetRecord, { document, now }: StoreView): TargetStatus {
  const { records, policy } = document;
  const isBehind = liveRecords(records).some((record) => targetsBehind(record, [target], policy, now).length > 0);
  return { ...target, isBehind };
}

/** The steps whose wait has not begun. In every rotation, each step is one for a moment. */
export function waitsOf(view: StoreView): WaitStatus[] {
  const { document, now } = view;
  const { records, policy, targets } = document;
  return liveRecords(records).flatMap((record) => {
    const wait = waitOf(record, policy);
    if (wait === undefined || wait.since !== undefined) return [];
    const { kid, use, state } = record;
    const behind = targetsBehind(record, targets, policy, now).map(({ name }) => name);
    const text = `${goalText(record, wait.forMs)} This wait has not begun. ${waitsFor(behind, view)}`;
    const action = state === "announced" ? "activated" : "removed";
    return [{ kid, use, action, since: stateSince(record), targets: behind, text }];
  });
}

/** What happens when the wait is over. */
function goalText({ use, kid, state }: LiveRecord, forMs: number): string {
  const goal =
    state === "announced" ? "becomes active after it was published" : "is removed after it was replaced, and kept";
  return `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}" ${goal} for ${durationText(forMs)}.`;
}

function waitsFor(behind: readonly string[], { processes }: StoreView): string {
  if (behind.length > 0) {
    const named = someOf(behind, (name) => `"${printable(name)}"`);
    const [targets, lack, them] = behind.length === 1 ? ["Target", "lacks", "it"] : ["Targets", "lack", "them"];
    return `${targets} ${named} ${lack} the step: write ${them} with jwksd publish; if nobody reads ${them}, use jwksd targets forget.`;
  }
  return processes.length === 0
    ? "It begins when a process reads the store. No process is listed; jwksd serve is one."
    : "It begins with the next read of the store, in a moment.";
}
