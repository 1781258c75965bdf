import { abortable } from "../async.ts";
import type { Clock } from "../clock.ts";
import { JwksdError, StateError } from "../errors.ts";
import type { KeyRecord } from "../store/store.ts";
import type { KeySink } from "./types.ts";
import { type OpenKeys, keysetsOf } from "./private-keys.ts";
import { isRotating } from "../rotation/records.ts";

/** How long a sink may take to take the keys. */
const updateMs = 10_000;

/** The providers, or whatever else has their `update`, that a manager gives its keys to. */
export function createSinks(clock: Clock, signal: AbortSignal) {
  /** Of which records each has taken the keys. */
  const taken = new Map<KeySink, readonly KeyRecord[]>();

  /** @throws StateError `ERR_UPDATE`, and what a provider throws */
  async function give(sink: KeySink, records: readonly KeyRecord[], keys: OpenKeys): Promise<void> {
    const late = new AbortController();
    const cancelTimer = clock.setTimer(
      () => late.abort(new StateError("ERR_UPDATE", `a sink has not taken the keys within ${updateMs} ms`)),
      updateMs,
    );
    try {
      const updating = (async () => sink.update(keysetsOf(records, keys), { isRotating: isRotating(records) }))();
      await abortable(updating, AbortSignal.any([late.signal, signal]));
      taken.set(sink, records);
    } catch (cause) {
      if (cause instanceof JwksdError) throw cause;
      throw new StateError("ERR_UPDATE", "a sink has not taken the keys; see the cause", { cause });
    } finally {
      cancelTimer();
    }
  }

  return {
    give,
    /** Gives the keys to all that have not taken them yet, at once, and says why some have not. */
    async giveAll(records: readonly KeyRecord[], keys: OpenKeys): Promise<readonly unknown[]> {
      const behind = [...taken].filter(([, given]) => given !== records);
      const outcomes = await Promise.allSettled(behind.map(([sink]) => give(sink, records, keys)));
      return outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
    },
  };
}
