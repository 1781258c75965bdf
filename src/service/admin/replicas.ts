import { durationText, kidText, relativeText, timeText } from "../../rotation/rules/format.ts";
import { type RotationPolicy, drainSeconds } from "../../rotation/rules/policy.ts";
import { isPermanent } from "../../rotation/rules/permanent-lease.ts";
import { maySign } from "../../rotation/rules/replica-settings.ts";
import { isLive, stateSince } from "../../rotation/rules/records.ts";
import { type Replicas, hasFollowed, replicasBehind, waitOf } from "../../rotation/rules/waits.ts";
import type { KeyRecord, Lease } from "../../rotation/store/store.ts";
import { printable } from "../../base/printable.ts";

/** The leases of a store at one moment. */
export interface ReplicasAt extends Replicas {
  /** In epoch milliseconds, by the clock of the store. */
  readonly now: number;
}

/** A replica, as its lease in the store shows it. */
export interface ReplicaStatus {
  readonly id: string;
  readonly name: string;
  readonly lastSeenAt: number;
  /** Until when the others rely on it; `Infinity` for a copy, which is served without a process. */
  readonly until: number;
  /** The revision that the replica publishes; 0 for none yet. */
  readonly publishes: number;
  /** By how many revisions; negative for one that follows a store which an older copy has taken the place of. */
  readonly behind: number;
  readonly signsWith: readonly string[];
  /** Why it signs with no key, where that is so. `unknown`: it does not say whether it ever signs. */
  readonly signing: "signs" | "publishes only" | "joins" | "fenced" | "unknown";
}

/** A step whose wait has not begun, because replicas have not followed. */
export interface WaitStatus {
  readonly kid: string;
  readonly use: "sig" | "enc";
  readonly action: "activated" | "removed";
  /** Since when the wait cannot begin. */
  readonly since: number;
  /** Ids of the replicas for which the step waits. */
  readonly replicas: readonly string[];
  readonly text: string;
}

const maxNamed = 5;

export function replicaStatus(lease: Lease, at: ReplicasAt): ReplicaStatus {
  const { id, name, until, publishes, signsWith } = lease;
  return {
    id,
    name,
    lastSeenAt: lastSeenAt(lease, at),
    until: isPermanent(lease) ? Infinity : until,
    publishes,
    behind: at.revision - publishes,
    signsWith,
    signing: signingOf(lease),
  };
}

export function waitsOf(records: readonly KeyRecord[], policy: RotationPolicy, at: ReplicasAt): WaitStatus[] {
  return records.flatMap((record) => {
    const wait = waitOf(record, policy);
    if (wait === undefined || wait.since !== undefined) return [];
    const { kid, use, state } = record;
    const action = state === "announced" ? "activated" : "removed";
    const behind = replicasBehind(record, at);
    const text = `${goalText(record, action, wait.forMs)} ${waitsFor(record, behind, at)}`;
    return [{ kid, use, action, since: stateSince(record), replicas: behind.map(({ id }) => id), text }];
  });
}

/** When a replica last renewed its lease, in epoch milliseconds. */
function lastSeenAt({ until, forMs }: Lease, { now }: ReplicasAt): number {
  return Math.min(until - forMs, now);
}

/** The leases whose time is not over. A lease whose time is over stays in the store until a replica ends it. */
export function runningLeases(leases: readonly Lease[], now: number): readonly Lease[] {
  return leases.filter(({ until }) => until > now);
}

/** How long ago a replica last renewed its lease: "40 s ago". */
export function lastSeenText(lease: Lease, at: ReplicasAt): string {
  return `${durationText(at.now - lastSeenAt(lease, at))} ago`;
}

/** 'replica "b", last seen 40 s ago' */
export function replicaText(lease: Lease, at: ReplicasAt): string {
  return `${isPermanent(lease) ? "copy" : "replica"} "${printable(lease.name)}", last seen ${lastSeenText(lease, at)}`;
}

/** What happens when the wait is over. */
function goalText({ use, kid }: KeyRecord, action: WaitStatus["action"], forMs: number): string {
  const goal =
    action === "activated"
      ? `becomes active ${durationText(forMs)} after every replica publishes it`
      : `is removed ${durationText(forMs)} after the last replica ${use === "sig" ? "stops signing with it" : "stops publishing it"}`;
  return `${use === "sig" ? "Signing" : "Encryption"} key "${kidText(kid)}" ${goal}.`;
}

function waitsFor(record: KeyRecord, behind: readonly Lease[], at: ReplicasAt): string {
  if (at.leases.length === 0) return "No replica runs, so this wait has not begun; jwksd serve is one.";
  if (behind.length === 0) return "All of them have followed, so this wait begins in a moment.";
  const drainText = (lease: Lease): string =>
    drainingKids(lease, [record], at).length === 0
      ? ""
      : `which lets requests end that began with the key (${drainSeconds} s), `;
  const named = behind
    .slice(0, maxNamed)
    .map((lease) => `${replicaText(lease, at)}, ${drainText(lease)}${endText(lease, at)}`);
  const more = behind.length > maxNamed ? [`${behind.length - maxNamed} more`] : [];
  return `This wait has not begun. It waits for ${[...named, ...more].join("; ")}.`;
}

/** The keys that were replaced, with which a replica that has followed only ends requests that began with them. */
export function drainingKids(lease: Lease, records: readonly KeyRecord[], { revision }: Replicas): string[] {
  const isReplaced = (kid: string): boolean =>
    records.some((record) => record.kid === kid && record.use === "sig" && record.state === "retiring");
  return hasFollowed(lease, revision) ? lease.signsWith.filter(isReplaced) : [];
}

/** When a lease ends. Running replicas end the lease of another one after they have seen no renewal for the length of that lease. */
function endText(lease: Lease, { now }: ReplicasAt): string {
  const { until, forMs } = lease;
  if (isPermanent(lease)) return `until jwksd publish has written it, or jwksd replicas end says that nobody reads it`;
  return until > now
    ? `at most until ${timeText(until)}`
    : `until one that runs has seen no renewal of its lease for ${durationText(forMs)}`;
}

function signingOf(lease: Lease): ReplicaStatus["signing"] {
  const { signsWith, publishes } = lease;
  if (signsWith.length > 0) return "signs";
  const signs = maySign(lease);
  if (signs === undefined && !isPermanent(lease)) return "unknown";
  if (signs !== true) return "publishes only";
  return publishes === 0 ? "joins" : "fenced";
}

/** What it means that a replica signs with no key. */
export const unsignedTexts = {
  "publishes only": "publishes; it is not set up to sign",
  joins: "has just joined, and signs with nothing yet",
  fenced: "fenced: it may not sign now, and its log and /readyz say why",
  unknown: "signs with nothing",
} as const satisfies Record<Exclude<ReplicaStatus["signing"], "signs">, string>;

/** Until when the others rely on a replica, in words. */
export function reliedOnText(lease: Lease, { now }: ReplicasAt): string {
  return isPermanent(lease) ? "it is ended by hand" : `${timeText(lease.until)}, ${relativeText(lease.until, now)}`;
}

/** What a replica publishes, in words. */
export function publishesText({ publishes }: Lease, { revision }: Replicas): string {
  if (publishes === 0) return "nothing yet";
  const behind = revision - publishes;
  if (behind < 0) return `revision ${publishes}, which the store no longer has`;
  return behind === 0 ? "the newest" : `${behind} revision${behind === 1 ? "" : "s"} behind`;
}

/**
 * What it means that a replica has not followed a change: until when it may publish and sign with the previous keys. A replica whose lease
 * has ended is not ready, and does not sign.
 */
export function lateText(lease: Lease, records: readonly KeyRecord[], at: ReplicasAt): string {
  const old = lease.signsWith.filter((kid) =>
    records.some((record) => record.kid === kid && record.state !== "active"),
  );
  const gone = old.filter((kid) => !records.some((record) => record.kid === kid && isLive(record)));
  const signs = old.length === 0 ? "" : `, and sign with ${old.map((kid) => `"${kidText(kid)}"`).join(" and ")}`;
  const refused = gone.length === 0 ? "" : " Verifiers with the new set refuse such tokens.";
  const text = replicaText(lease, at);
  const ahead = `${text.charAt(0).toUpperCase()}${text.slice(1)}, publishes revision ${lease.publishes}, which the store no longer has.`;
  if (lease.publishes > at.revision) return `${ahead} It refuses an older copy of its store until it is restarted.`;
  const end = isPermanent(lease) ? "jwksd publish has written it" : `${timeText(lease.until)} at most`;
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}, may serve the previous keys${signs}, until ${end}.${refused}`;
}
