import type { Planned } from "./due.ts";
import { type KeyRecord, liveRecords } from "./key-records.ts";
import type { TargetRecord } from "./waits.ts";

// The `jwksd publish` targets that the store lists.

/** A store's records and targets. */
type Held = Pick<Planned, "records" | "targets">;

const entryOf = ({ targets }: Held, name: string): TargetRecord | undefined =>
  targets.find((target) => target.name === name);

const withTarget = ({ targets }: Held, next: TargetRecord): readonly TargetRecord[] => [
  ...targets.filter(({ name }) => name !== next.name),
  next,
];

/**
 * Reports whether the store has yet to record that a target received a step. Considers the steps that wait for targets,
 * and also revocations, because operators wait for those.
 */
export function isTargetBehind(held: Held, name: string): boolean {
  const { revision = 0, at = 0 } = entryOf(held, name) ?? {};
  const isRevoked = (record: KeyRecord): boolean => record.state === "revoked" && record.endedAt >= at;
  return (
    liveRecords(held.records).some(({ stateRevision = 0 }) => stateRevision > revision) || held.records.some(isRevoked)
  );
}

/** Returns the targets that are being served but have not received a step. */
export const lateTargets = (held: Held): readonly TargetRecord[] =>
  held.targets.filter(({ name, revision }) => revision > 0 && isTargetBehind(held, name));

/**
 * Adds a target to the store before anything is written to the target, so that no step overlooks it. Keeps the entry up
 * to date until the target has been read back.
 */
export function namedTarget(planned: Planned, name: string, now: number): readonly TargetRecord[] {
  const { revision = 0, at = 0 } = entryOf(planned, name) ?? {};
  const isDue = revision === 0 && now >= at + (planned.policy.maxStaleSeconds * 1000) / 6;
  return isDue ? withTarget(planned, { name, revision: 0, at: now }) : planned.targets;
}

/** Records the revision that was read back from a target. */
export function writtenTarget(held: Held, name: string, revision: number, now: number): readonly TargetRecord[] {
  const known = entryOf(held, name)?.revision ?? 0;
  return isTargetBehind(held, name) && revision > known ? withTarget(held, { name, revision, at: now }) : held.targets;
}
