import { sleep } from "../../base/async.ts";
import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import type { Processes } from "../../rotation/custody/presence.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";

/** In milliseconds. */
const limits = {
  /** Age up to which the list is used. */
  oldMs: 2_000,
  /** How long a caller waits for a new one. */
  waitMs: 250,
} as const;

/** Lists the processes that are running. */
export type ProcessList = () => Promise<Processes>;

/**
 * Makes the list of the processes that are running, for people. The store is read once in two seconds, however many callers there are, and
 * again immediately after a change. A caller waits for a slow store for `waitMs` at most and then gets the last list.
 */
export function createProcessList(manager: Pick<ServiceManager, "processes" | "document">, clock: Clock): ProcessList {
  let found: Processes = { processes: [], unread: 0 };
  let last: { readonly at: Moment<"monotonic">; readonly revision: number } | undefined;
  let asking: Promise<void> | undefined;

  async function ask(): Promise<void> {
    const at = monotonicNow(clock);
    const { revision } = manager.document;
    // An outage is in the manager's health.
    found = await manager.processes().catch(() => found);
    [last, asking] = [{ at, revision }, undefined];
  }

  return async () => {
    const isNew =
      last?.revision === manager.document.revision && msBetween(last.at, monotonicNow(clock)) < limits.oldMs;
    if (isNew) return found;
    asking ??= ask();
    const enough = new AbortController();
    const waited = sleep(limits.waitMs, clock, enough.signal).catch(() => {});
    await Promise.race([asking, waited]).finally(() => enough.abort());
    return found;
  };
}
