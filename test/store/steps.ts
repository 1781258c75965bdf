import assert from "node:assert/strict";
import type { KeyEvent, KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import { eventOf, tombstone } from "../../src/testing/records.ts";

const recordsAt = (revision: number): KeyRecord[] => [
  ...(revision === 0 ? [] : [{ ...tombstone("counter"), announcedAt: revision }]),
  ...Array.from({ length: revision }, (_, index) => tombstone(`kid ${index + 1}`)),
];

/** A commit that changes a record, adds one and appends two events, so that a half of it could be told. */
export function nextCommit(revision: number): { readonly records: KeyRecord[]; readonly events: KeyEvent[] } {
  const kid = `kid ${revision + 1}`;
  return { records: recordsAt(revision + 1), events: [eventOf(kid, "first"), eventOf(kid, "second")] };
}

/** Asserts that a store holds the work of whole {@link nextCommit}s only, and gives their number. */
export async function checkSteps(store: KeyStore): Promise<number> {
  const { revision, records } = await store.load();
  const events = await store.events();
  assert.deepEqual(records, recordsAt(revision));
  const expected = Array.from({ length: revision }, (_, index) => nextCommit(index).events).flat();
  assert.deepEqual(
    events.toReversed(),
    expected.map((event, index) => Object.assign(event, { number: index + 1 })),
  );
  return revision;
}
