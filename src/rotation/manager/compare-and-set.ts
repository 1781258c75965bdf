import { sleep, withDeadline } from "../../base/async.ts";
import { type Clock, type Instant, type Moment, instantNow } from "../../base/clock.ts";
import { StoreError, codeOf } from "../../base/errors.ts";
import type { Change } from "../rules/advance.ts";
import { traced } from "../../base/trace.ts";
import type { StoreAnswer, OnCall, StoreOperation } from "./health.ts";
import type { KeyRecord, KeyStore, LeaseSeen, Snapshot } from "../store/store.ts";

const maxAttempts = 20;
const maxPauseMs = 1_000;
/** How long one call of the store may take. */
const storeMs = 10_000;

/** A change to commit. */
export interface Decision extends Change {
  /** The leases on which the change relies. If they have changed, the commit is a conflict. Default: none. */
  readonly leases?: readonly LeaseSeen[] | undefined;
}

/** What a store held, and when it was asked and had answered by the clocks of this machine. */
export interface Seen extends Snapshot {
  readonly asked: Moment<"wall">;
  readonly answered: Instant;
}

/** A change, and the records before it. */
export interface Changed extends Change {
  readonly before: readonly KeyRecord[];
  /** What was found in the store when the change was decided. */
  readonly seen: Seen;
  /** The revision of the records; in a preview, the revision of the records before. */
  readonly revision: number;
}

interface Options {
  readonly clock: Clock;
  readonly signal?: AbortSignal | undefined;
  readonly onCall?: OnCall | undefined;
}

/**
 * Loads the records, lets `decide` change them, and commits. If another commit came first, starts again. Records that `decide` returns
 * unchanged are not committed.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE` (also after 10 s without an answer), `ERR_COMMIT_UNKNOWN`, `ERR_RECORDS_INVALID`,
 * `ERR_STORE_CONFLICT` after 20 attempts
 * @throws what `decide` throws, and the reason of a signal that aborts
 */
export async function compareAndSet(
  store: KeyStore,
  decide: (seen: Seen) => Decision | Promise<Decision>,
  { clock, signal = new AbortController().signal, onCall }: Options,
): Promise<Changed> {
  for (let attempt = 1; ; attempt += 1) {
    const seen = await look(store, { clock, signal, onCall });
    const { records: before, revision } = seen;
    const { records, events, leases } = await decide(seen);
    if (records === before && events.length === 0) return { records, events, before, seen, revision };
    try {
      const commit = (signal: AbortSignal): Promise<number> =>
        store.commit(revision, records, events, { signal, leases });
      return { records, events, before, seen, revision: await ofStore("commit", commit, { clock, signal, onCall }) };
    } catch (error) {
      if (codeOf(error) !== "ERR_STORE_CONFLICT" || attempt === maxAttempts) throw error;
    }
    // At random, so that replicas that collided do not collide again.
    await sleep(Math.random() * Math.min(2 ** attempt, maxPauseMs), clock, signal);
  }
}

/** Loads what a store holds. @throws StoreError `ERR_STORE_UNAVAILABLE` */
export async function look(store: KeyStore, options: Options): Promise<Seen> {
  const { wall: asked } = instantNow(options.clock);
  const snapshot = await ofStore("load", (signal) => store.load({ signal }), options);
  return { ...snapshot, asked, answered: instantNow(options.clock) };
}

/** Calls a store, and waits for at most 10 s, even if the store ignores the signal. */
export async function ofStore<T extends StoreAnswer>(
  operation: StoreOperation,
  call: (signal: AbortSignal) => Promise<T>,
  { clock, signal, onCall }: Options,
): Promise<T> {
  try {
    const answer = await traced(`jwksd store ${operation}`, {}, () =>
      withDeadline(call, { clock, timeoutMs: storeMs, signal, expired: storeHangs }),
    );
    onCall?.(operation, { answer });
    return answer;
  } catch (error) {
    onCall?.(operation, { error });
    throw error;
  }
}

const storeHangs = (): StoreError =>
  new StoreError("ERR_STORE_UNAVAILABLE", `the store has not answered within ${storeMs / 1000} s`);
