import { withDeadline } from "../async.ts";
import type { Clock } from "../clock.ts";
import { JwksdError, StateError } from "../errors.ts";
import { isRotating } from "../rotation/records.ts";
import type { KeyRecord } from "../store/store.ts";
import { type OpenKeys, keysetsOf } from "./private-keys.ts";
import type { KeySink } from "./types.ts";

/** How long a sink may take to take the keys. */
const updateMs = 10_000;

const expired = (): Error => new StateError("ERR_UPDATE", `a sink has not taken the keys within ${updateMs} ms`);

/** Whoever takes the keys of a manager: providers, and whatever else has their `update`. */
export function createSinks(clock: Clock, signal: AbortSignal) {
  /** The records whose keys each sink has taken. */
  const taken = new Map<KeySink, readonly KeyRecord[]>();
  let failures: readonly unknown[] = [];

  /** @throws StateError `ERR_UPDATE`, and what a provider throws */
  async function give(sink: KeySink, records: readonly KeyRecord[], keys: OpenKeys): Promise<void> {
    try {
      await withDeadline(async () => sink.update(keysetsOf(records, keys), { isRotating: isRotating(records) }), {
        clock,
        timeoutMs: updateMs,
        signal,
        expired,
      });
      taken.set(sink, records);
    } catch (cause) {
      if (cause instanceof JwksdError) throw cause;
      throw new StateError("ERR_UPDATE", "a sink has not taken the keys; see the cause", { cause });
    }
  }

  return {
    give,
    /** Gives the keys, at once, to all that have not taken them yet. */
    async giveAll(records: readonly KeyRecord[], keys: OpenKeys): Promise<void> {
      const behind = [...taken].filter(([, given]) => given !== records);
      const outcomes = await Promise.allSettled(behind.map(([sink]) => give(sink, records, keys)));
      failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
    },
    /** Whether a sink has not taken the newest keys. */
    get isBehind() {
      return failures.length > 0;
    },
    /** @throws what the first sink that is behind threw */
    check(): void {
      if (failures.length > 0) throw failures[0];
    },
  };
}
