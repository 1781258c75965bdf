import { sleep } from "../../base/async.ts";
import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import type { Processes } from "../../rotation/custody/presence.ts";

/** In milliseconds. */
const limits = {
  /** How old the list may be when somebody wants it. */
  oldMs: 2_000,
  /** For how long somebody waits for a new one. */
  waitMs: 250,
} as const;

/**
 * The processes that live, for people: the store is asked once in two seconds, however many people want them, and again at once after a
 * change. Nobody waits longer for a slow store than `waitMs`, and gets what it had last.
 */
export function createProcessList(
  manager: Pick<ServiceManager, "processes" | "document">,
  clock: Clock,
): () => Promise<Processes> {
  let found: Processes = { processes: [], unread: 0 };
  let last: { readonly at: Moment<"monotonic">; readonly revision: number } | undefined;
  let asking: Promise<void> | undefined;

  async function ask(): Promise<void> {
    const at = monotonicNow(clock);
    const { revision } = manager.document;
    // An outage is in the health of the manager.
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
