import { isDeepStrictEqual } from "node:util";
import { retryDelayMs, sleep } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { codeOf } from "../../base/errors.ts";
import { type Metric, sumMetrics } from "../../base/metrics.ts";
import {
  type KeySetEvent,
  type RemoteKeySet,
  type RemoteKeySetOptions,
  createRemoteKeySet,
} from "../../verify/relying-party/index.ts";
import type { Logger } from "../config/logger.ts";

/** All issuers' keys, which are shared by the hosts and kept across reloads. */
export interface KeySets {
  /**
   * Switches to the sets that `build` requests and closes all others. Fetches each new set, retrying until it
   * succeeds. If `build` throws, nothing changes.
   */
  replace<T>(this: void, build: (use: UseKeySet) => T): T;
  /** Returns the names of the sets that have never been fetched. */
  missing(this: void): readonly string[];
  metrics(this: void): readonly Metric[];
  close(this: void): void;
}

/** Returns an issuer's keys, or the keys at a URL. Called once for each issuer or URL. */
export type UseKeySet = (options: RemoteKeySetOptions) => RemoteKeySet;

/** A key set. Each issuer and each URL has only one set, so each set's metrics have their own label. */
interface Entry {
  readonly options: RemoteKeySetOptions;
  readonly keys: RemoteKeySet;
  /** Aborted when the keys are no longer used. */
  readonly closed: AbortController;
}

export function createKeySets(clock: Clock, log: Logger): KeySets {
  let current = new Map<string, Entry>();

  function entryFor(options: RemoteKeySetOptions): Entry {
    const onEvent = (event: KeySetEvent): void => logEvent(log, nameOf(options), event);
    return { options, keys: createRemoteKeySet({ ...options, clock, onEvent }), closed: new AbortController() };
  }

  async function fetchFirst({ keys, closed }: Entry): Promise<void> {
    for (let failures = 1; keys.state() === undefined; failures += 1) {
      // The failure has already been logged as an event.
      await keys.refresh().catch(() => {});
      if (keys.state() === undefined) await sleep(retryDelayMs(failures), clock, closed.signal);
    }
  }

  return {
    replace(build) {
      const next = new Map<string, Entry>();
      const built = build((options) => {
        const name = nameOf(options);
        const known = current.get(name);
        const entry = known !== undefined && isDeepStrictEqual(known.options, options) ? known : entryFor(options);
        next.set(name, entry);
        return entry.keys;
      });
      const before = current;
      current = next;
      for (const [name, entry] of before) if (next.get(name) !== entry) close(entry);
      for (const [name, entry] of next) if (before.get(name) !== entry) fetchFirst(entry).catch(() => {});
      return built;
    },
    missing: () => [...current].filter(([, { keys }]) => keys.state() === undefined).map(([name]) => name),
    metrics: () => sumMetrics([...current.values()].map(({ keys }) => keys.metrics())),
    close: () => current.forEach(close),
  };
}

/** Returns the name that the log and the metrics use for a set. */
export const nameOf = ({ issuer, jwksUri }: RemoteKeySetOptions): string => (issuer ?? jwksUri) as string;

function close({ keys, closed }: Entry): void {
  keys.close();
  closed.abort();
}

function logEvent(log: Logger, set: string, event: KeySetEvent): void {
  if (event.type === "failed")
    log.warn({ set, code: codeOf(event.error) }, `an issuer's keys cannot be fetched: ${event.error.message}`);
  else if (event.type === "changed")
    log.info({ set, added: event.added, removed: event.removed }, "an issuer's keys changed");
  else if (event.type === "skipped") log.warn({ set, keys: event.keys }, "some of an issuer's keys cannot be used");
  else if (event.type === "cache-bypass-failed")
    log.warn(
      { set, ageSeconds: event.ageSeconds },
      "a cache in front of the issuer ignores no-cache; new keys may arrive late",
    );
}
