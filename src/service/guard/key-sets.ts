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
import type { Logger } from "../config/log.ts";

/** The keys of all issuers, shared by hosts and kept across reloads. */
export interface KeySets {
  /**
   * Uses the sets that `build` asks for from now on, closes the others, and fetches the keys of the new ones until that succeeds. If `build`
   * throws, nothing changes.
   */
  replace<T>(this: void, build: (use: UseKeySet) => T): T;
  /** Returns the issuers whose keys have never been fetched. */
  missing(this: void): readonly string[];
  metrics(this: void): readonly Metric[];
  close(this: void): void;
}

/** Returns an issuer's keys. */
export type UseKeySet = (issuer: string, options: RemoteKeySetOptions) => RemoteKeySet;

/** One issuer's keys. */
interface Entry {
  readonly issuer: string;
  readonly keys: RemoteKeySet;
  /** Aborted when the keys are no longer used. */
  readonly closed: AbortController;
}

export function createKeySets(clock: Clock, log: Logger): KeySets {
  let current = new Map<string, Entry>();

  async function fetchFirst({ keys, closed }: Entry): Promise<void> {
    for (let failures = 1; keys.state() === undefined; failures += 1) {
      // The event has been logged.
      await keys.refresh().catch(() => {});
      if (keys.state() === undefined) await sleep(retryDelayMs(failures), clock, closed.signal);
    }
  }

  return {
    replace(build) {
      const next = new Map<string, Entry>();
      const built = build((issuer, options) => {
        const name = JSON.stringify([issuer, options]);
        const onEvent = (event: KeySetEvent): void => logEvent(log, issuer, event);
        const entry = next.get(name) ??
          current.get(name) ?? {
            issuer,
            keys: createRemoteKeySet({ ...options, clock, onEvent }),
            closed: new AbortController(),
          };
        next.set(name, entry);
        return entry.keys;
      });
      const before = current;
      current = next;
      for (const [name, entry] of before) if (!next.has(name)) close(entry);
      for (const [name, entry] of next) if (!before.has(name)) fetchFirst(entry).catch(() => {});
      return built;
    },
    missing: () => [...current.values()].filter(({ keys }) => keys.state() === undefined).map(({ issuer }) => issuer),
    metrics: () => sumMetrics([...current.values()].map(({ keys }) => keys.metrics())),
    close: () => current.forEach(close),
  };
}

function close({ keys, closed }: Entry): void {
  keys.close();
  closed.abort();
}

function logEvent(log: Logger, issuer: string, event: KeySetEvent): void {
  if (event.type === "failed")
    log.warn({ issuer, code: codeOf(event.error) }, `an issuer's keys cannot be fetched: ${event.error.message}`);
  else if (event.type === "changed")
    log.info({ issuer, added: event.added, removed: event.removed }, "an issuer's keys changed");
  else if (event.type === "skipped") log.warn({ issuer, keys: event.keys }, "some of an issuer's keys cannot be used");
  else if (event.type === "cache-bypass-failed")
    log.warn(
      { issuer, ageSeconds: event.ageSeconds },
      "a cache in front of the issuer ignores no-cache; new keys may arrive late",
    );
}
