import { withDeadline } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { JwksdError, StateError } from "../../base/errors.ts";
import { liveRecords } from "../rules/records.ts";
import type { KeyRecord } from "../store/store.ts";
import { type OpenKeys, keysetsOf } from "./private-keys.ts";
import type { KeySubscriber } from "../../library/provider/managed-keys.ts";

/** How long a subscriber may take to take the keys. */
const updateMs = 10_000;
/** A copy may lie behind a network and a cache that somebody clears first. */
const copyMs = 120_000;

/** What matters to a subscriber: keys that are gone do not. */
const textOf = ({ records, keys, isRotating }: Given): string =>
  JSON.stringify([liveRecords(records).map(({ kid, state }) => [kid, state, keys.signers.has(kid)]), isRotating]);

/** What a subscriber is given. */
export interface Given {
  readonly records: readonly KeyRecord[];
  readonly keys: OpenKeys;
  readonly isRotating: boolean;
}

/**
 * Whoever takes the keys of a manager: providers, and whatever else has their `update`.
 *
 * @param copy has taken nothing yet, and is behind until it has
 */
export function createSubscribers(clock: Clock, signal: AbortSignal, copy?: KeySubscriber) {
  /** What each subscriber has taken. */
  const taken = new Map<KeySubscriber, string>(copy === undefined ? [] : [[copy, ""]]);
  let failures: readonly unknown[] = [];

  /** @throws StateError `ERR_UPDATE`, and what a provider throws */
  async function give(subscriber: KeySubscriber, { records, keys, isRotating }: Given): Promise<void> {
    const timeoutMs = subscriber === copy ? copyMs : updateMs;
    const expired = (): Error =>
      new StateError("ERR_UPDATE", `a subscriber has not taken the keys within ${timeoutMs} ms`);
    const update = async (): Promise<void> => subscriber.update(keysetsOf(records, keys), { isRotating });
    try {
      await withDeadline(update, { clock, timeoutMs, signal, expired });
      taken.set(subscriber, textOf({ records, keys, isRotating }));
    } catch (cause) {
      if (cause instanceof JwksdError) throw cause;
      throw new StateError("ERR_UPDATE", "a subscriber has not taken the keys; see the cause", { cause });
    }
  }

  return {
    give,
    /** Gives the keys, at once, to all that have not taken them yet. */
    async giveAll(given: Given): Promise<void> {
      const text = textOf(given);
      const behind = [...taken].filter(([, taken]) => taken !== text);
      const outcomes = await Promise.allSettled(behind.map(([subscriber]) => give(subscriber, given)));
      failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
    },
    /** Whether a subscriber has not taken the newest keys. */
    get isBehind() {
      return failures.length > 0;
    },
    /** @throws what the first subscriber that is behind threw */
    check(): void {
      if (failures.length > 0) throw failures[0];
    },
  };
}

export type Subscribers = ReturnType<typeof createSubscribers>;
