import { sleep } from "../../base/async.ts";
import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import type { Processes } from "../../rotation/custody/presence-records.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";

/** Times in milliseconds. */
const limits = {
  /** Maximum age at which a list is still used. */
  oldMs: 2_000,
  /** How long a caller waits for a new list. */
  waitMs: 250,
} as const;

/** Lists the running processes. */
export type ProcessList = () => Promise<Processes>;

/**
 * Creates the function that lists the running processes for operators. However many callers there are, the store is
 * read at most once every two seconds, except that it is also read immediately after a change. If the store is slow, a
 * caller waits for at most `waitMs` and then gets the previous list.
 */
export function createProcessList(manager: Pick<ServiceManager, "processes" | "document">, clock: Clock): ProcessList {
  let found: Processes = { processes: [], unread: 0 };
  let last: { readonly at: Moment<"monotonic">; readonly revision: number } | undefined;
  let asking: Promise<void> | undefined;

  async function ask(): Promise<void> {
    const at = monotonicNow(clock);
    const { revision } = manager.document;
    // Ignored here, because the manager's health shows the outage.
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
