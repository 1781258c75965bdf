import { sleep, withDeadline } from "../async.ts";
import type { Clock } from "../clock.ts";
import { StoreError } from "../errors.ts";
import type { Change } from "../rotation/advance.ts";
import { traced } from "../trace.ts";
import type { OnCall, StoreOperation } from "./metrics.ts";
import type { KeyStore, LeaseSeen, Snapshot } from "../store/store.ts";

const maxAttempts = 20;
const maxPauseMs = 1_000;
/** How long one call of the store may take. */
const storeMs = 10_000;

/** What may be committed. */
export interface Decision extends Change {
  /** The leases that it relies on. The commit is a conflict if they have changed. Default: none. */
  readonly leases?: readonly LeaseSeen[] | undefined;
}

/** A decision that is in the store. */
export interface Outcome<T> {
  readonly decision: T;
  /** What was decided on. */
  readonly before: Snapshot;
  /** That of the records of the decision. */
  readonly revision: number;
}

interface Options {
  readonly clock: Clock;
  readonly signal?: AbortSignal | undefined;
  readonly onCall?: OnCall | undefined;
}

/**
 * Loads the records, lets `decide` change them, and commits; where another commit came first, all of it again. What `decide` gives
 * back unchanged is not committed.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE` (also after 10 s without an answer), `ERR_COMMIT_UNKNOWN`, `ERR_RECORDS_INVALID`,
 * `ERR_STORE_CONFLICT` after 20 attempts
 * @throws what `decide` throws, and the reason of a signal that aborts
 */
export async function compareAndSet<T extends Decision>(
  store: KeyStore,
  decide: (snapshot: Snapshot) => T | Promise<T>,
  { clock, signal = new AbortController().signal, onCall }: Options,
): Promise<Outcome<T>> {
  for (let attempt = 1; ; attempt += 1) {
    const before = await ofStore("load", (signal) => store.load({ signal }), { clock, signal, onCall });
    const decision = await decide(before);
    const { records, events, leases } = decision;
    if (records === before.records && events.length === 0) return { decision, before, revision: before.revision };
    try {
      const commit = (signal: AbortSignal): Promise<number> =>
        store.commit(before.revision, records, events, { signal, leases });
      return { decision, before, revision: await ofStore("commit", commit, { clock, signal, onCall }) };
    } catch (error) {
      const isConflict = error instanceof StoreError && error.code === "ERR_STORE_CONFLICT";
      if (!isConflict || attempt === maxAttempts) throw error;
    }
    // At random, so that replicas that collided do not collide again.
    await sleep(Math.random() * Math.min(2 ** attempt, maxPauseMs), clock, signal);
  }
}

/** A call of a store, which is not waited for longer than 10 s, even if the store does not look at its signal. */
export async function ofStore<T>(
  operation: StoreOperation,
  call: (signal: AbortSignal) => Promise<T>,
  { clock, signal, onCall }: Options,
): Promise<T> {
  try {
    const answer = await traced(`jwksd store ${operation}`, {}, () =>
      withDeadline(call, { clock, timeoutMs: storeMs, signal, expired: storeHangs }),
    );
    onCall?.(operation);
    return answer;
  } catch (error) {
    onCall?.(operation, error);
    throw error;
  }
}

const storeHangs = (): StoreError =>
  new StoreError("ERR_STORE_UNAVAILABLE", `the store has not answered within ${storeMs / 1000} s`);
