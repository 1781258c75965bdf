import { durationText, kidText, relativeText, timeText } from "../../rotation/rules/format.ts";
import type { RotationPolicy } from "../../rotation/rules/policy.ts";
import { isStanding } from "../../rotation/rules/standing.ts";
import { isLive } from "../../rotation/rules/records.ts";
import { type Replicas, replicasBehind, waitOf } from "../../rotation/rules/waits.ts";
import type { KeyRecord, Lease } from "../../rotation/store/store.ts";
import { printable } from "../../base/printable.ts";

/** What the replicas of a store have told it, at one moment. */
export interface ReplicasAt extends Replicas {
  /** In epoch milliseconds, by the clock of the store. */
  readonly now: number;
}

/** A step of a key whose wait has not begun. */
export interface HeldUpStep {
  readonly record: KeyRecord;
  readonly action: "activated" | "removed";
  /** How long the wait is, once it begins. */
  readonly forMs: number;
  /** For whom it waits. */
  readonly behind: readonly Lease[];
}

const maxNamed = 5;

export function heldUpSteps(records: readonly KeyRecord[], policy: RotationPolicy, replicas: Replicas): HeldUpStep[] {
  return records.flatMap((record) => {
    const wait = waitOf(record, policy);
    if (wait === undefined || wait.since !== undefined) return [];
    const action = record.state === "announced" ? "activated" : "removed";
    return [{ record, action, forMs: wait.forMs, behind: replicasBehind(record, replicas) }];
  });
}

/** When a replica was last heard of, in epoch milliseconds. */
export function heardAt({ until, forMs }: Lease, { now }: ReplicasAt): number {
  return Math.min(until - forMs, now);
}

/** The leases of those that may run: the time of the others is over, though nobody has ended them yet. */
export function heardOf(leases: readonly Lease[], now: number): readonly Lease[] {
  return leases.filter(({ until }) => until > now);
}

/** How long ago that was: "40 s ago". */
export function heardText(lease: Lease, at: ReplicasAt): string {
  return `${durationText(at.now - heardAt(lease, at))} ago`;
}

/** 'replica "b", last heard of 40 s ago' */
export function replicaText(lease: Lease, at: ReplicasAt): string {
  return `${isStanding(lease) ? "copy" : "replica"} "${printable(lease.name)}", last heard of ${heardText(lease, at)}`;
}

/** What a step waits for, in words. */
export function heldUpText({ record, action, forMs, behind }: HeldUpStep, at: ReplicasAt): string {
  const { use, kid } = record;
  const goal =
    action === "activated"
      ? `becomes active ${durationText(forMs)} after every replica publishes it`
      : `is removed ${durationText(forMs)} after the last replica ${use === "sig" ? "stops signing with it" : "stops publishing it"}`;
  return `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}" ${goal}. ${waitsFor(behind, at)}`;
}

function waitsFor(behind: readonly Lease[], at: ReplicasAt): string {
  if (at.leases.length === 0) return "No replica runs, so this wait has not begun; jwksd serve is one.";
  if (behind.length === 0) return "All of them have followed, so this wait begins in a moment.";
  const named = behind.slice(0, maxNamed).map((lease) => `${replicaText(lease, at)}, ${endText(lease, at)}`);
  const more = behind.length > maxNamed ? [`${behind.length - maxNamed} more`] : [];
  return `This wait has not begun. It waits for ${[...named, ...more].join("; ")}.`;
}

/** Those that run end the lease of a replica when they have seen no renewal for as long as it lasts. */
function endText(lease: Lease, { now }: ReplicasAt): string {
  const { until, forMs } = lease;
  if (isStanding(lease)) return `until jwksd publish has written it, or jwksd replicas end says that nobody reads it`;
  return until > now
    ? `at most until ${timeText(until)}`
    : `until one that runs has seen no renewal of its lease for ${durationText(forMs)}`;
}

/** Until when the others rely on a replica, in words. */
export function reliedOnText(lease: Lease, { now }: ReplicasAt): string {
  return isStanding(lease) ? "it is ended by hand" : `${timeText(lease.until)}, ${relativeText(lease.until, now)}`;
}

/** What a replica publishes, in words. */
export function publishesText({ publishes }: Lease, { revision }: Replicas): string {
  if (publishes === 0) return "nothing yet";
  const behind = revision - publishes;
  return behind <= 0 ? "the newest" : `${behind} revision${behind === 1 ? "" : "s"} behind`;
}

/**
 * What it means that a replica has not followed a change: until when it may act on what was before. A replica whose lease has ended is
 * not ready, and does not sign.
 */
export function lateText(lease: Lease, records: readonly KeyRecord[], at: ReplicasAt): string {
  const old = lease.signsWith.filter((kid) =>
    records.some((record) => record.kid === kid && record.state !== "active"),
  );
  const gone = old.filter((kid) => !records.some((record) => record.kid === kid && isLive(record)));
  const signs = old.length === 0 ? "" : `, and sign with ${old.map((kid) => `"${kidText(kid)}"`).join(" and ")}`;
  const refused = gone.length === 0 ? "" : " Verifiers with the new set refuse such tokens.";
  const text = replicaText(lease, at);
  const end = isStanding(lease) ? "jwksd publish has written it" : `${timeText(lease.until)} at most`;
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}, may serve the keys of before${signs}, until ${end}.${refused}`;
}
