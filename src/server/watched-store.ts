import { withDeadline } from "../async.ts";
import type { Clock } from "../clock.ts";
import { StoreError } from "../errors.ts";
import type { StoreSeen } from "../status/known.ts";
import type { KeyStore, LeaseSeen } from "../store/store.ts";

/** How old what is known of the store may be when somebody looks at it, and how long a look may take, in milliseconds. */
const limits = { oldMs: 2_000, lookMs: 3_000 } as const;
const maxEvents = 20;

/** A store, and what its calls have told. */
export interface WatchedStore {
  readonly store: KeyStore;
  seen(this: void): StoreSeen;
  /** Looks at the store, unless that was done a moment ago. An outage is noted. */
  look(this: void): Promise<void>;
}

/** Errors that are no answer of the store. */
const outages: ReadonlySet<unknown> = new Set(["ERR_STORE_UNAVAILABLE", "ERR_COMMIT_UNKNOWN"]);

/** Remembers what the calls of a store tell, whoever makes them. */
export function watchedStore(inner: KeyStore, clock: Clock): WatchedStore {
  let seen: StoreSeen = { audit: [] };
  let lookedAt = -Infinity;
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
    const { code, message } = error;
    if (outages.has(code)) seen = { ...seen, lastError: { at: clock.now(), code, message } };
    else if (code !== "ERR_CLOSED") seen = { ...seen, lastSuccessAt: clock.now() };
  }

  function noteRevision(revision: number): void {
    if (revision !== seen.revision) seen = { ...seen, revision, revisionSince: clock.now() };
  }

  function noteSelf({ id, publishes, signsWith }: LeaseSeen): void {
    if (seen.self?.id === id) seen = { ...seen, self: { ...seen.self, publishes, signsWith } };
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
      noteSelf(lease);
      noteRevision(revision);
      return revision;
    },
    leave: (id, options) => note(inner.leave(id, options)),
    events: (options) => note(inner.events(options)),
    watch: (onChange, options) => inner.watch(onChange, options),
    close: () => inner.close(),
  };

  async function load(signal: AbortSignal): Promise<void> {
    await store.load({ signal });
    const audit = await store.events({ limit: maxEvents, signal });
    seen = { ...seen, audit };
  }

  async function look(): Promise<void> {
    lookedAt = clock.now();
    await withDeadline(load, { clock, timeoutMs: limits.lookMs, expired: tooSlow }).catch(noteOutage);
    looking = undefined;
  }

  return {
    store,
    seen: () => seen,
    look() {
      if (Math.abs(clock.now() - lookedAt) >= limits.oldMs) looking ??= look();
      return looking ?? Promise.resolve();
    },
  };
}

const tooSlow = (): StoreError =>
  new StoreError("ERR_STORE_UNAVAILABLE", `the store has not answered within ${limits.lookMs / 1000} s`);
