import type { CopyRecord } from "../rules/waits.ts";
import { liveRecords } from "../rules/records.ts";
import type { StoreDocument } from "../custody/document.ts";
import type { KeySubscriber } from "../../library/provider/managed-keys.ts";

/** A copy of the documents that is served without the process that writes it. */
export interface Copy extends KeySubscriber {
  /** The same for every process that writes this copy. */
  readonly name: string;
}

const entryOf = ({ copies }: StoreDocument, name: string): CopyRecord | undefined =>
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

/** Whether a step waits until the store knows that a copy has it. */
export function isAwaited(document: StoreDocument, name: string): boolean {
  const { revision = 0 } = entryOf(document, name) ?? {};
  return revision === 0 || liveRecords(document.records).some(({ stateRevision = 0 }) => stateRevision > revision);
}

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
