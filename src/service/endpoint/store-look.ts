import { sleep } from "../../base/async.ts";
import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import type { ProcessLine } from "../../rotation/custody/presence.ts";

/** Bounds of looks at the store, in milliseconds. */
const limits = {
  /** How old what is known may be when somebody looks. */
  oldMs: 2_000,
  /** For how long of a look somebody waits. */
  waitMs: 250,
} as const;

/** The processes that live, for people: the store is asked once in two seconds, however many people look. */
export interface StoreLook {
  /** As of the last look. */
  readonly processes: readonly ProcessLine[];
  /** Asks the store, unless it was asked a moment ago at this revision. The caller does not wait longer for a slow store than `waitMs`. */
  look(): Promise<void>;
}

export function createStoreLook(manager: Pick<ServiceManager, "processes" | "document">, clock: Clock): StoreLook {
  let processes: readonly ProcessLine[] = [];
  let last: { readonly at: Moment<"monotonic">; readonly revision: number } | undefined;
  let looking: Promise<void> | undefined;

  async function lookNow(): Promise<void> {
    const at = monotonicNow(clock);
    const { revision } = manager.document;
    // An outage is in the health of the manager.
    processes = await manager.processes().catch(() => processes);
    [last, looking] = [{ at, revision }, undefined];
  }

  return {
    get processes() {
      return processes;
    },
    async look() {
      const isNew =
        last?.revision === manager.document.revision && msBetween(last.at, monotonicNow(clock)) < limits.oldMs;
      if (isNew) return;
      looking ??= lookNow();
      const enough = new AbortController();
      const waited = sleep(limits.waitMs, clock, enough.signal).catch(() => {});
      await Promise.race([looking, waited]).finally(() => enough.abort());
    },
  };
}
