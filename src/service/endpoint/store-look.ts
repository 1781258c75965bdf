import { sleep } from "../../base/async.ts";
import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import type { StoredEvent } from "../../rotation/store/store.ts";

/** Bounds of looks at the store, in milliseconds. */
const limits = {
  /** How old what is known may be when somebody looks. */
  oldMs: 2_000,
  /** For how long of a look somebody waits. */
  waitMs: 250,
} as const;

/** What the other replicas have told the store, for people: asked once in two seconds, however many people look. */
export function createStoreLook(manager: Pick<ServiceManager, "observe" | "health">, clock: Clock) {
  let audit: readonly StoredEvent[] = [];
  let audited: { readonly at: Moment<"monotonic">; readonly revision: number | undefined } | undefined;
  let looking: Promise<void> | undefined;

  async function lookNow(): Promise<void> {
    const at = monotonicNow(clock);
    // An outage is in the health of the manager.
    await manager.observe().then(
      (events) => (audit = events),
      () => {},
    );
    audited = { at, revision: manager.health.store.revision };
    looking = undefined;
  }

  return {
    /** The newest events of the audit log, newest first. Nothing authenticates them. */
    audit: (): readonly StoredEvent[] => audit,

    /** Loads leases and events, unless they were loaded a moment ago at this revision. The caller does not wait longer for a slow store than `waitMs`. */
    async look(): Promise<void> {
      const isNew =
        audited !== undefined &&
        msBetween(audited.at, monotonicNow(clock)) < limits.oldMs &&
        audited.revision === manager.health.store.revision;
      if (!isNew) looking ??= lookNow();
      if (looking === undefined) return;
      const enough = new AbortController();
      const waited = sleep(limits.waitMs, clock, enough.signal).catch(() => {});
      await Promise.race([looking, waited]).finally(() => enough.abort());
    },
  };
}
