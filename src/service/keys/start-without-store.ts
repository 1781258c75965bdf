import { withFlags } from "../config/setting-names.ts";
import { sleep } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { stale } from "../../rotation/manager/check-in.ts";
import { timeText } from "../../base/format.ts";
import type { Signing } from "./signing.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import { knownError } from "../../rotation/manager/health.ts";
import type { SavedSet } from "./saved-set.ts";
import type { Logger } from "../config/log.ts";
import type { RunningManager } from "./run-manager.ts";

const retryMs = { first: 1_000, last: 30_000 } as const;

interface Options {
  readonly log: Logger;
  readonly isReady: boolean;
  /** Whether others sign through this process. */
  readonly signs: boolean;
  /** Why the store could not be reached at the start. */
  readonly outage: KnownError;
  readonly clock?: Clock;
}

/**
 * Publishes a saved set until the store is back; then what `start` gives goes on.
 *
 * @param start starts the manager; tried again and again
 */
export function startWithoutStore(
  { set, at, policy }: SavedSet,
  start: () => Promise<RunningManager>,
  { log, isReady, signs, outage, clock = systemClock }: Options,
): RunningManager {
  const stopping = new AbortController();
  const { signal } = stopping;
  let managed: RunningManager | undefined;
  let last = outage;
  let running = Promise.resolve();

  async function run(...followed: Parameters<RunningManager["follow"]>): Promise<void> {
    for (let delayMs: number = retryMs.first; ; delayMs = Math.min(delayMs * 2, retryMs.last)) {
      await sleep(delayMs, clock, signal);
      try {
        managed = await joined(await start(), ...followed);
        log.info({}, "the store is back, and its keys are published");
        return;
      } catch (error) {
        last = knownError(error, clock.now());
        if (signal.aborted) continue;
        log.error({ code: last.code }, `keys cannot be managed, the saved set stays: ${withFlags(last.message)}`);
      }
    }
  }

  async function joined(next: RunningManager, ...followed: Parameters<RunningManager["follow"]>) {
    try {
      signal.throwIfAborted();
      await next.follow(...followed);
      return next;
    } catch (error) {
      await next.stop();
      throw error;
    }
  }

  function reached(): Signing {
    if (managed?.signing === undefined) throw stale("the store was not reached since the start");
    return managed.signing;
  }
  const signing: Signing = {
    sign: async (...call) => reached().sign(...call),
    signPayload: async (payload) => reached().signPayload(payload),
    checkMaySign: () => reached().checkMaySign(),
    published: () => managed?.signing?.published() ?? [],
    takenAt: () => managed?.signing?.takenAt() ?? at,
    maxTokenLifetimeSeconds: () => managed?.signing?.maxTokenLifetimeSeconds() ?? policy.maxTokenLifetimeSeconds,
  };

  return {
    published: set,
    get isRotating() {
      // The saved set may be old.
      return managed?.isRotating ?? true;
    },
    notReady() {
      if (managed !== undefined) return managed.notReady();
      return isReady ? undefined : `the store was not reached since the start; the set is of ${timeText(at)}`;
    },
    signing: signs ? signing : undefined,
    metrics: () => managed?.metrics() ?? [],
    stateText: (kid) => managed?.stateText(kid) ?? "of the saved set; nothing signs until the store is back",
    known: async () => managed?.known() ?? { withoutStore: { savedAt: at, outage: last } },
    async follow(...followed) {
      running = run(...followed).catch(() => {});
    },
    async stop() {
      stopping.abort();
      await running;
      await managed?.stop();
    },
  };
}
