import type { CopyRecord } from "../rules/waits.ts";
import { type KeyRecord, liveRecords } from "../rules/records.ts";
import type { StoreDocument } from "../custody/document.ts";
import type { KeySubscriber } from "../../provider/managed-keys.ts";

/** A copy of the documents that is served without the process that writes it. */
export interface Copy extends KeySubscriber {
  /** The same for every process that writes this copy. */
  readonly name: string;
}

type Held = Pick<StoreDocument, "copies" | "records">;

const entryOf = ({ copies }: Pick<StoreDocument, "copies">, name: string): CopyRecord | undefined =>
  copies.find((copy) => copy.name === name);

/** The copies with this one, which has the keys of a revision. */
function withCopy({ copies }: StoreDocument, next: CopyRecord): readonly CopyRecord[] {
  return [...copies.filter(({ name }) => name !== next.name), next];
}

/** Names a copy in the store before it is first written, so that no step forgets it; again and again until it was read back. */
export function begunCopy(document: StoreDocument, name: string, now: number): readonly CopyRecord[] {
  const { revision = 0, at = 0 } = entryOf(document, name) ?? {};
  const isDue = revision === 0 && now >= at + (document.policy.maxStaleSeconds * 1000) / 6;
  return isDue ? withCopy(document, { name, revision: 0, at: now }) : document.copies;
}

/** Whether the store should know that a copy has a step: one that waits for the copy, or a revocation, which people wait for. */
export function isAwaited(document: Held, name: string): boolean {
  const { revision = 0, at = 0 } = entryOf(document, name) ?? {};
  const isRevoked = (record: KeyRecord): boolean => record.state === "revoked" && record.endedAt >= at;
  return (
    liveRecords(document.records).some(({ stateRevision = 0 }) => stateRevision > revision) ||
    document.records.some(isRevoked)
  );
}

/** The copies that are served and lack a step. */
export const lateCopies = (document: Held): readonly CopyRecord[] =>
  document.copies.filter(({ name, revision }) => revision > 0 && isAwaited(document, name));

/** Notes in the store the revision that was read back from a copy. */
export function writtenCopy(
  document: StoreDocument,
  name: string,
  revision: number,
  now: number,
): readonly CopyRecord[] {
  const known = entryOf(document, name)?.revision ?? 0;
  return isAwaited(document, name) && revision > known
    ? withCopy(document, { name, revision, at: now })
    : document.copies;
}
