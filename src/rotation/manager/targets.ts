import type { TargetRecord } from "../rules/waits.ts";
import { type KeyRecord, liveRecords } from "../rules/records.ts";
import type { StoreDocument } from "../custody/document.ts";
import type { KeySubscriber } from "../../provider/managed-keys.ts";

/** A target of the documents that is served without the process that writes it. */
export interface Target extends KeySubscriber {
  /** The same for every process that writes this target. */
  readonly name: string;
}

type Held = Pick<StoreDocument, "targets" | "records">;

const entryOf = ({ targets }: Pick<StoreDocument, "targets">, name: string): TargetRecord | undefined =>
  targets.find((target) => target.name === name);

/** The targets with this one, which has the keys of a revision. */
function withTarget({ targets }: StoreDocument, next: TargetRecord): readonly TargetRecord[] {
  return [...targets.filter(({ name }) => name !== next.name), next];
}

/** Names a target in the store before it is first written, so that no step forgets it; again and again until it was read back. */
export function begunTarget(document: StoreDocument, name: string, now: number): readonly TargetRecord[] {
  const { revision = 0, at = 0 } = entryOf(document, name) ?? {};
  const isDue = revision === 0 && now >= at + (document.policy.maxStaleSeconds * 1000) / 6;
  return isDue ? withTarget(document, { name, revision: 0, at: now }) : document.targets;
}

/** Whether the store should know that a target has a step: one that waits for the target, or a revocation, which people wait for. */
export function isTargetBehind(document: Held, name: string): boolean {
  const { revision = 0, at = 0 } = entryOf(document, name) ?? {};
  const isRevoked = (record: KeyRecord): boolean => record.state === "revoked" && record.endedAt >= at;
  return (
    liveRecords(document.records).some(({ stateRevision = 0 }) => stateRevision > revision) ||
    document.records.some(isRevoked)
  );
}

/** The targets that are served and lack a step. */
export const lateTargets = (document: Held): readonly TargetRecord[] =>
  document.targets.filter(({ name, revision }) => revision > 0 && isTargetBehind(document, name));

/** Notes in the store the revision that was read back from a target. */
export function writtenTarget(
  document: StoreDocument,
  name: string,
  revision: number,
  now: number,
): readonly TargetRecord[] {
  const known = entryOf(document, name)?.revision ?? 0;
  return isTargetBehind(document, name) && revision > known
    ? withTarget(document, { name, revision, at: now })
    : document.targets;
}
