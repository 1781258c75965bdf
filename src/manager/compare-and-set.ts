import { sleep, withDeadline } from "../async.ts";
import type { Clock } from "../clock.ts";
import { StoreError } from "../errors.ts";
import type { Change } from "../rotation/advance.ts";
import { checkRecords } from "../rotation/records.ts";
import type { KeyRecord, KeyStore } from "../store/store.ts";

const maxAttempts = 20;
const maxPauseMs = 1_000;
/** How long one call of the store may take. */
const storeMs = 10_000;

/**
 * Loads the records, lets `decide` change them, and commits; where another commit came first, all of it again. What `decide` gives
 * back unchanged is not committed.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE` (also after 10 s without an answer), `ERR_RECORDS_INVALID`, `ERR_STORE_CONFLICT` after 20
 * attempts
 * @throws what `decide` throws, and the reason of a signal that aborts
 */
export async function compareAndSet<T extends Change>(
  store: KeyStore,
  decide: (records: readonly KeyRecord[]) => T | Promise<T>,
  {
    clock,
    signal = new AbortController().signal,
  }: { readonly clock: Clock; readonly signal?: AbortSignal | undefined },
): Promise<T> {
  // A store that does not look at its signal is not waited for, either.
  const limited = <R>(work: (signal: AbortSignal) => Promise<R>): Promise<R> =>
    withDeadline(work, { clock, timeoutMs: storeMs, signal, expired: storeHangs });
  for (let attempt = 1; ; attempt += 1) {
    const { revision, records } = await limited((signal) => store.load({ signal }));
    checkRecords(records);
    const change = await decide(records);
    if (change.records === records && change.events.length === 0) return change;
    try {
      await limited((signal) => store.commit(revision, change.records, change.events, { signal }));
      return change;
    } catch (error) {
      const isConflict = error instanceof StoreError && error.code === "ERR_STORE_CONFLICT";
      if (!isConflict || attempt === maxAttempts) throw error;
    }
    // At random, so that replicas that collided do not collide again.
    await sleep(Math.random() * Math.min(2 ** attempt, maxPauseMs), clock, signal);
  }
}

const storeHangs = (): StoreError =>
  new StoreError("ERR_STORE_UNAVAILABLE", `the store has not answered within ${storeMs / 1000} s`);
