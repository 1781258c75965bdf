import { pauseAfter, withDeadline } from "../../base/async.ts";
import { type Clock, epochMs, instantNow } from "../../base/clock.ts";
import { type JwksdError, StoreError } from "../../base/errors.ts";
import { traced } from "../../base/tracing.ts";
import type { Custody } from "../custody/custody.ts";
import {
  type DocumentChange,
  type StoreDocument,
  type StoredEvent,
  emptyDocument,
  nextDocument,
  textBytes,
} from "../custody/document.ts";
import { listPresence } from "../custody/presence-records.ts";
import { readRegister, storeFailure } from "../custody/read-register.ts";
import { nextLookAt } from "../rules/due.ts";
import type { AuditEvent, KeyRecord } from "../rules/key-records.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { checkNotRolledBack } from "../rules/restored-backup-check.ts";
import type { PresenceList, ReadResult } from "../store/register.ts";
import { type Seen, storeNow } from "./store-clock.ts";
import type { Filling } from "./types.ts";

const maxAttempts = 20;
const maxPauseMs = 1_000;
/** Time limit for a call to the store, in milliseconds. */
const storeMs = 10_000;
/**
 * How long a process that is shutting down waits for its presence record to be removed, in milliseconds. If it is not
 * removed, the process stays listed until it would have become stale.
 */
const forgetMs = 2_000;

/** Fraction of a register's capacity at which operators are warned. */
const warnedShare = 0.7;
/** Number of bytes reserved for revocations. */
const reservedBytes = 4_096;

/**
 * Decides what to change, given what was read. If the change has no members, nothing is written. Called again if
 * another commit came first.
 */
export type Decide = (seen: Seen) => DocumentChange | Promise<DocumentChange>;

/** A change and the records before it. */
export interface Changed {
  readonly records: readonly KeyRecord[];
  readonly events: readonly AuditEvent[];
  readonly before: readonly KeyRecord[];
  /** The read on which the decision was based. */
  readonly seen: Seen;
  /** The document with the change applied, even in a preview. */
  readonly document: StoreDocument;
}

export type StoreOperation = "read" | "write" | "presence";

/** Codes of errors that occur if the store does not respond. */
export const unanswered: ReadonlySet<string> = new Set(["ERR_STORE_UNAVAILABLE", "ERR_COMMIT_UNKNOWN"]);

/** Observes the calls to a store. */
export interface StoreObserver {
  /** Receives each call that has ended and, if it failed, its error. */
  onCall(operation: StoreOperation, error?: JwksdError): void;
  /** Receives each revision that was read or committed. */
  onRevision(revision: number): void;
  /** Receives the size of a stored document that takes up 70% or more of what its register can hold. */
  onFilling(filling: Filling): void;
}

/** A write of the stored document. */
interface Commit {
  readonly text: string;
  readonly ifVersion: string | undefined;
  readonly due: number | undefined;
  readonly commit: string;
}

export interface StoreAccessOptions {
  /** Policy of an empty store. */
  readonly policy: RotationPolicy;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly observer?: StoreObserver | undefined;
}

/**
 * Reads and writes the store for one process. Refuses a store whose state is older than what this process has read, or
 * whose history differs from what it has read.
 */
export interface StoreAccess {
  /** The read with the latest revision. */
  readonly last: Seen | undefined;
  /** The store's time or, before the first read, this machine's time, in epoch milliseconds. */
  readonly now: number;
  /**
   * Reads the document.
   *
   * @param options.confirmed whether the response must come from a primary that has not been replaced
   * @throws StoreError `ERR_STORE_UNAVAILABLE` (including after 10 s without a response), `ERR_RECORDS_INVALID`; see
   * `Custody.open`
   */
  read(options?: { readonly confirmed?: boolean }): Promise<Seen>;
  /**
   * Reads the document, lets `decide` change it, and commits the change. If another commit came first, starts over.
   *
   * @param found result of a read that was just made, to be used for the first attempt
   * @throws StoreError `ERR_COMMIT_UNKNOWN` if the commit may have been written or may still be written; to find out
   * whether it was written, read the store
   * @throws StoreError `ERR_STORE_CONFLICT` after 20 attempts, as well as the errors from `read` and `decide`
   */
  change(decide: Decide, found?: Seen): Promise<Changed>;
  /** Returns what `change` would do now. */
  preview(decide: Decide): Promise<Changed>;
  /** Reports whether an event in a document was committed by this process. */
  isOwn(this: void, event: StoredEvent, document: StoreDocument): boolean;
  /** Writes this process's presence record to the store, if its register has presence records. */
  present(id: string, record: string): Promise<void>;
  /** Removes the presence records of processes that are no longer running. */
  forget(ids: readonly string[]): Promise<void>;
  /** Lists the presence records of all processes. */
  presence(): Promise<PresenceList>;
}

export function createStoreAccess(custody: Custody, options: StoreAccessOptions): StoreAccess {
  const { register } = custody;
  const { policy, clock, signal, observer } = options;
  const { maxBytes = Infinity } = register;
  let last: Seen | undefined;
  /**
   * The latest commits that this process has tried to make and that contain events. A commit was written only if a
   * document contains its id.
   */
  let tried: readonly { readonly commit: string; readonly events: readonly StoredEvent[] }[] = [];

  /** Calls the store. Returns within 10 s, even if the store ignores the signal. */
  async function call<T>(
    operation: StoreOperation,
    work: (signal: AbortSignal) => Promise<T>,
    code: "ERR_STORE_UNAVAILABLE" | "ERR_COMMIT_UNKNOWN" = "ERR_STORE_UNAVAILABLE",
  ): Promise<T> {
    const expired = (): Error => new StoreError(code, `the store did not respond within ${storeMs / 1000} s`);
    try {
      const answer = await traced(`jwksd store ${operation}`, {}, () =>
        withDeadline(work, { clock, timeoutMs: storeMs, signal, expired }),
      );
      observer?.onCall(operation);
      return answer;
    } catch (thrown) {
      const error = storeFailure(operation, thrown, code);
      observer?.onCall(operation, error);
      throw error;
    }
  }

  async function read({ confirmed = false } = {}): Promise<Seen> {
    // Stored before the request, because another read by this process may end before this one.
    const before = last;
    const asked = instantNow(clock);
    const found = await call("read", (signal) => readRegister(register, before?.version, { signal, confirmed }));
    const answered = instantNow(clock);
    const isKnown = found.version !== undefined && found.version === before?.version;
    const document = isKnown ? before.document : await documentOf(found);
    if (before !== undefined) checkIsLater(document, before.document);
    const hasClock = found.now !== undefined;
    const now = found.now ?? epochMs(answered.wall);
    const seen = { document, version: found.version, now, hasClock, asked, answered };
    if (last === undefined || last.document.revision <= document.revision) last = seen;
    observer?.onRevision(last.document.revision);
    return seen;
  }

  async function documentOf({ text }: ReadResult): Promise<StoreDocument> {
    if (text === undefined) return emptyDocument(custody.owner, policy);
    const bytes = textBytes(text);
    if (bytes >= maxBytes * warnedShare) observer?.onFilling({ bytes, maxBytes });
    return custody.open(text);
  }

  /**
   * Tries to write once. Resolves to `undefined` if it is unknown whether the document was written.
   *
   * @throws StoreError if it was certainly not written
   */
  async function tryWrite({ text, ifVersion, due, commit }: Commit): Promise<boolean | undefined> {
    const write = (signal: AbortSignal): Promise<boolean> => register.write(text, ifVersion, { signal, due });
    const isWritten = await call("write", write, "ERR_COMMIT_UNKNOWN").catch((error: unknown) => {
      signal.throwIfAborted();
      if (error instanceof StoreError && error.code !== "ERR_COMMIT_UNKNOWN") throw error;
      return undefined;
    });
    if (isWritten !== false) return isWritten;
    // A driver that repeats a statement returns `false` for a write that succeeded.
    return read().then(
      ({ document }) => document.commits.includes(commit),
      () => undefined,
    );
  }

  /** Writes the document. Resolves to whether it was written. */
  async function write(
    document: StoreDocument,
    { version, now }: Seen,
    commit: string,
    room: number,
  ): Promise<boolean> {
    const text = await custody.seal(document);
    // Checked here, because some databases truncate a document that does not fit and still report success.
    if (textBytes(text) > room) throw full(maxBytes);
    const call = { text, ifVersion: version, due: nextLookAt(document, now), commit };
    const isWritten = await tryWrite(call);
    if (isWritten !== undefined) return isWritten;
    // Repeating the write with the same condition shows whether it was written, even if the first write arrives later.
    const isSettled = await tryWrite(call).catch(() => undefined);
    signal.throwIfAborted();
    if (isSettled !== undefined) return isSettled;
    throw new StoreError("ERR_COMMIT_UNKNOWN", "the store has not confirmed whether the commit was written");
  }

  return {
    get last() {
      return last;
    },
    get now() {
      return last === undefined ? clock.now() : storeNow(last, clock);
    },

    read,

    async preview(decide) {
      const seen = await read();
      const decision = await decide(seen);
      return changed(seen, decision, nextDocument(seen.document, decision, ""));
    },

    async change(decide, found) {
      for (let attempt = 1; ; attempt += 1) {
        const seen = attempt === 1 && found !== undefined ? found : await read();
        const decision = await decide(seen);
        if (isNothing(decision, seen.document)) return changed(seen, decision, seen.document);
        const commit = crypto.randomUUID();
        const room = maxBytes - reservedBytes;
        // The private keys move to a different owner together with the document, so a commit that does not change the
        // records keeps the owner.
        const owner = decision.records === undefined ? seen.document.owner : custody.owner;
        const document = nextDocument(seen.document, { owner, ...decision }, commit, room);
        const lastNumber = seen.document.events.at(-1)?.number ?? 0;
        const events = document.events.filter(({ number }) => number > lastNumber);
        if (events.length > 0) tried = [...tried, { commit, events }].slice(-document.commits.length - 1);
        const isRevocation = decision.events?.some(({ type }) => type === "revoked") === true;
        if (await write(document, seen, commit, isRevocation ? maxBytes : room)) {
          // A failover may lose the commit before it is read back, so the commit's version is not known yet.
          last = { ...seen, document, version: undefined };
          observer?.onRevision(document.revision);
          return changed(seen, decision, document);
        }
        if (attempt === maxAttempts) throw conflict();
        await pauseAfter(attempt, maxPauseMs, clock, signal);
      }
    },

    isOwn: ({ number }, { commits }) =>
      tried.some(({ commit, events }) => commits.includes(commit) && events.some((event) => event.number === number)),

    async present(id, record) {
      const { presence } = register;
      if (presence !== undefined) await call("presence", (signal) => presence.put(id, record, { signal }));
    },

    async forget(ids) {
      const { presence } = register;
      // The manager's signal is not used here, because it has already been aborted.
      const drop = async (signal: AbortSignal): Promise<void> => presence?.drop(ids, { signal });
      await withDeadline(drop, { clock, timeoutMs: forgetMs, expired: () => new Error("no answer") });
    },

    presence: () => call("presence", (signal) => listPresence(register.presence, { signal })),
  };
}

const changed = (seen: Seen, { events = [] }: DocumentChange, document: StoreDocument): Changed => ({
  seen,
  document,
  before: seen.document.records,
  records: document.records,
  events,
});

/** Reports whether a decision changes nothing. */
function isNothing({ events = [], ...changed }: DocumentChange, document: StoreDocument): boolean {
  return (
    events.length === 0 &&
    Object.entries(changed).every(([name, value]) => value === document[name as keyof StoreDocument])
  );
}

/**
 * Refuses a store that was restored from an older backup or has lost commits in a failover. It may have lost a key's
 * revocation, for example.
 *
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
function checkIsLater(found: StoreDocument, seen: StoreDocument): void {
  const commit = seen.commits.at(-1);
  if (commit === undefined || found.commits.includes(commit)) return;
  if (found.revision <= seen.revision) {
    throw older(
      `the store is at revision ${found.revision} but was at ${seen.revision}, so it is empty or contains an older backup`,
    );
  }
  // After more commits than the document lists, the last known commit is no longer in the list.
  if (found.revision < seen.revision + found.commits.length) {
    throw older(
      `the store has lost revision ${seen.revision}, so it must have been restored from an older backup, and other processes have written to it since`,
    );
  }
  checkNotRolledBack(found.records, seen.records);
}

const older = (what: string): StoreError =>
  new StoreError(
    "ERR_RECORDS_INVALID",
    `${what}; restore the latest state, or restart this process to accept the store's current state`,
  );

const full = (maxBytes: number): StoreError =>
  new StoreError(
    "ERR_STORE_FULL",
    `nothing was changed: the document would be larger than the store can hold (${maxBytes.toLocaleString("en")} bytes); copy the keys to a larger store with jwksd store migrate`,
  );

const conflict = (): StoreError =>
  new StoreError("ERR_STORE_CONFLICT", `another commit came first ${maxAttempts} times in a row; try again`);
