import { sleep, withDeadline } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { StoreError } from "../../base/errors.ts";
import { unanswered } from "../../rotation/manager/metrics.ts";
import { type StoreSeen, knownError } from "../admin/known.ts";
import type { KeyStore } from "../../rotation/store/store.ts";

/** Bounds of looks at the store, in milliseconds. */
const limits = {
  /** How old what is known may be when somebody looks. */
  oldMs: 2_000,
  /** How long a look may take. */
  lookMs: 3_000,
  /** For how long of it somebody waits. */
  waitMs: 250,
} as const;
const maxEvents = 20;

export type WatchedStore = ReturnType<typeof watchedStore>;

/** Remembers what the calls of a store tell, whoever makes them. */
export function watchedStore(inner: KeyStore, clock: Clock) {
  let seen: StoreSeen = { audit: [] };
  let lookedAt = -Infinity;
  let auditedRevision = -1;
  let looking: Promise<void> | undefined;

  async function note<T>(call: Promise<T>): Promise<T> {
    seen = { ...seen, lastAttemptAt: clock.now() };
    try {
      const answer = await call;
      seen = { ...seen, lastSuccessAt: clock.now() };
      return answer;
    } catch (error) {
      noteOutage(error);
      throw error;
    }
  }

  /** A call that was given up because this process ends tells nothing of the store. */
  function noteOutage(error: unknown): void {
    if (!(error instanceof StoreError)) return;
    if (unanswered.has(error.code)) seen = { ...seen, lastError: knownError(error, clock.now()) };
    else if (error.code !== "ERR_CLOSED") seen = { ...seen, lastSuccessAt: clock.now() };
  }

  function noteRevision(revision: number): void {
    if (revision !== seen.revision) seen = { ...seen, revision, revisionSince: clock.now() };
  }

  const store: KeyStore = {
    async load(options) {
      const snapshot = await note(inner.load(options));
      const { revision, leases, now } = snapshot;
      noteRevision(revision);
      seen = { ...seen, loaded: { leases, now, at: clock.now() } };
      return snapshot;
    },
    async commit(...args) {
      const revision = await note(inner.commit(...args));
      noteRevision(revision);
      return revision;
    },
    async join(lease, forMs, options) {
      await note(inner.join(lease, forMs, options));
      seen = { ...seen, self: { ...lease, publishes: 0, signsWith: [] } };
    },
    async renew(lease, forMs, options) {
      const revision = await note(inner.renew(lease, forMs, options));
      const { id, publishes, signsWith } = lease;
      if (seen.self?.id === id) seen = { ...seen, self: { ...seen.self, publishes, signsWith } };
      noteRevision(revision);
      return revision;
    },
    leave: (id, options) => note(inner.leave(id, options)),
    events: (options) => note(inner.events(options)),
    watch: (onChange, options) => inner.watch(onChange, options),
    close: () => inner.close(),
  };

  async function load(signal: AbortSignal): Promise<void> {
    const { revision } = await store.load({ signal });
    const audit = await store.events({ limit: maxEvents, signal });
    auditedRevision = revision;
    seen = { ...seen, audit };
  }

  async function lookNow(): Promise<void> {
    lookedAt = clock.now();
    await withDeadline(load, { clock, timeoutMs: limits.lookMs, expired: tooSlow }).catch(noteOutage);
    looking = undefined;
  }

  /**
   * Looks at the store, unless that was done a moment ago and nothing has changed since. An outage is noted. Whoever looks does not wait for
   * a store that takes its time: it finds later what that tells.
   */
  async function look(): Promise<void> {
    const isOld = Math.abs(clock.now() - lookedAt) >= limits.oldMs;
    if (isOld || auditedRevision !== seen.revision) looking ??= lookNow();
    if (looking === undefined) return;
    const enough = new AbortController();
    const waited = sleep(limits.waitMs, clock, enough.signal).catch(() => {});
    await Promise.race([looking, waited]).finally(() => enough.abort());
  }

  return { store, seen: () => seen, look };
}

const tooSlow = (): StoreError =>
  new StoreError("ERR_STORE_UNAVAILABLE", `the store has not answered within ${limits.lookMs / 1000} s`);
