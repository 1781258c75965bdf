import { withDeadline } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { JwksdError, StateError } from "../../base/errors.ts";
import { type KeyRecord, liveRecords } from "../rules/records.ts";
import { type OpenKeys, keysetsOf } from "./private-keys.ts";
import type { KeySubscriber } from "../../provider/managed-keys.ts";

/** How long a subscriber may take to take the keys. */
const updateMs = 10_000;
/** A target takes longer: it may lie behind a network, and behind a cache that the purge command clears first. */
const targetMs = 120_000;

/** The part of the keys that matters to a subscriber: live keys, and no tombstones. */
const textOf = ({ records, keys, isRotating, maxTokenLifetimeSeconds }: SubscriberUpdate): string => {
  const live = liveRecords(records).map(({ kid, state }) => [kid, state, keys.signers.has(kid)]);
  return JSON.stringify([live, isRotating, maxTokenLifetimeSeconds]);
};

/** What a subscriber is given. */
export interface SubscriberUpdate {
  readonly records: readonly KeyRecord[];
  readonly keys: OpenKeys;
  readonly isRotating: boolean;
  readonly maxTokenLifetimeSeconds: number;
}

export interface Subscribers {
  /** Gives the keys to a new subscriber as soon as there are any. */
  add(subscriber: KeySubscriber): void;
  /** Gives the keys to a new subscriber. @throws StateError `ERR_UPDATE`, and what a provider throws */
  give(subscriber: KeySubscriber, given: SubscriberUpdate): Promise<void>;
  /** Gives the keys to all subscribers that have not taken them yet, at the same time. */
  giveAll(given: SubscriberUpdate): Promise<void>;
  /** Whether a subscriber has not taken the newest keys. */
  readonly isBehind: boolean;
  /** @throws what the first subscriber that is behind threw */
  check(): void;
}

/**
 * The subscribers of a manager: providers, and other objects with the method `update`.
 *
 * @param target is behind until it has taken the keys for the first time
 */
export function createSubscribers(clock: Clock, signal: AbortSignal, target?: KeySubscriber): Subscribers {
  /** What each subscriber has taken; empty where that is not known. */
  const taken = new Map<KeySubscriber, string>(target === undefined ? [] : [[target, ""]]);
  let failures: readonly unknown[] = [];

  async function give(subscriber: KeySubscriber, given: SubscriberUpdate): Promise<void> {
    const { records, keys, isRotating } = given;
    const timeoutMs = subscriber === target ? targetMs : updateMs;
    const expired = (): Error =>
      new StateError("ERR_UPDATE", `a subscriber has not taken the keys within ${timeoutMs} ms`);
    const update = async (): Promise<void> => subscriber.update(keysetsOf(records, keys), { isRotating });
    try {
      await withDeadline(update, { clock, timeoutMs, signal, expired });
      taken.set(subscriber, textOf(given));
    } catch (cause) {
      if (cause instanceof JwksdError) throw cause;
      throw new StateError("ERR_UPDATE", "a subscriber has not taken the keys; see the cause", { cause });
    }
  }

  return {
    add: (subscriber) => void taken.set(subscriber, ""),
    give,
    async giveAll(given) {
      const text = textOf(given);
      const behind = [...taken].filter(([, taken]) => taken !== text);
      // An update that is reported as failed may have been taken all the same. So until one succeeds, nobody knows what a subscriber has.
      for (const [subscriber] of behind) taken.set(subscriber, "");
      const outcomes = await Promise.allSettled(behind.map(([subscriber]) => give(subscriber, given)));
      failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
    },
    get isBehind() {
      return failures.length > 0;
    },
    check() {
      if (failures.length > 0) throw failures[0];
    },
  };
}
