import { abortable } from "../async.ts";
import type { Clock } from "../clock.ts";
import { StoreError } from "../errors.ts";
import type { KeyRecord, KeyStore } from "../store/store.ts";
import type { Change } from "../rotation/advance.ts";
import { checkRecords } from "../rotation/records.ts";

const maxAttempts = 20;
const maxPauseMs = 1_000;

/**
 * Loads the records, lets `decide` change them, and commits; where another commit came first, all of it again. What `decide` gives
 * back unchanged is not committed.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_RECORDS_INVALID`, `ERR_STORE_CONFLICT` after 20 attempts
 * @throws what `decide` throws, and the reason of a signal that aborts
 */
export async function compareAndSet(
  store: KeyStore,
  decide: (records: readonly KeyRecord[]) => Change | Promise<Change>,
  { clock, signal }: { readonly clock: Clock; readonly signal?: AbortSignal | undefined },
): Promise<Change> {
  for (let attempt = 1; ; attempt += 1) {
    signal?.throwIfAborted();
    // A store that does not look at the signal is not waited for, either.
    const { revision, records } = await abortable(store.load({ signal }), signal);
    checkRecords(records);
    const change = await decide(records);
    if (change.records === records && change.events.length === 0) return change;
    try {
      await abortable(store.commit(revision, change.records, change.events, { signal }), signal);
      return change;
    } catch (error) {
      const isConflict = error instanceof StoreError && error.code === "ERR_STORE_CONFLICT";
      if (!isConflict || attempt === maxAttempts) throw error;
    }
    // At random, so that replicas that collided do not collide again.
    const pauseMs = Math.random() * Math.min(2 ** attempt, maxPauseMs);
    await pause(pauseMs, clock, signal);
  }
}

async function pause(pauseMs: number, clock: Clock, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const end = (): void => {
      cancelTimer();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const cancelTimer = clock.setTimer(end, pauseMs);
    signal?.addEventListener("abort", end, { once: true });
  });
}
