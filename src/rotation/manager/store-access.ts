import { pauseAfter, withDeadline } from "../../base/async.ts";
import { type Clock, type Instant, epochMs, instantNow, longestSince, setSince } from "../../base/clock.ts";
import { JwksdError, StoreError } from "../../base/errors.ts";
import { durationText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { isDate } from "../../base/format.ts";
import { traced } from "../../base/trace.ts";
import type { Custody } from "../custody/custody.ts";
import {
  type DocumentChange,
  type StoreDocument,
  type StoredEvent,
  emptyDocument,
  nextDocument,
  textBytes,
} from "../custody/document.ts";
import type { At } from "../rules/advance.ts";
import { nextLookAt } from "../rules/due.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import type { KeyEvent, KeyRecord } from "../rules/records.ts";
import { checkNotRolledBack } from "../rules/rollback.ts";
import { listPresence } from "../custody/presence.ts";
import type { PresenceList, Reading } from "../store/register.ts";
import type { OnCall, StoreOperation } from "./health.ts";
import type { Filling } from "./types.ts";

const maxAttempts = 20;
const maxPauseMs = 1_000;
/** How long one call of the store may take. */
const storeMs = 10_000;
/** How long a process that ends waits until its presence record is removed; otherwise it is listed until it would be stale. */
const forgetMs = 2_000;

/** The part of a register from which on people are warned. */
const warnedShare = 0.7;
/** What revocations alone may use. */
const reservedBytes = 4_096;

/** What was read of a store, and when it was asked and had answered by the clocks of this machine. */
export interface Seen {
  readonly document: StoreDocument;
  readonly version: string | undefined;
  /** Epoch milliseconds by the clock of the store, or else by that of this machine. */
  readonly now: number;
  /** Whether the store has a clock of its own. */
  readonly hasClock: boolean;
  readonly asked: Instant;
  readonly answered: Instant;
}

/** What a commit changes; nothing where it has no member. */
export type Decision = DocumentChange;

/** A change, and what was there before. */
export interface Changed {
  readonly records: readonly KeyRecord[];
  readonly events: readonly KeyEvent[];
  readonly before: readonly KeyRecord[];
  /** What was found in the store when the change was decided. */
  readonly seen: Seen;
  /** The document with the change; in a preview as well. */
  readonly document: StoreDocument;
}

/** A write of the text. */
interface Commit {
  readonly text: string;
  readonly ifVersion: string | undefined;
  readonly due: number;
  readonly commit: string;
}

export interface StoreAccessOptions {
  /** Of a store before its first commit. */
  readonly policy: RotationPolicy;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onCall?: OnCall | undefined;
  /** Is told of each revision that is read. */
  readonly onRevision?: ((revision: number) => void) | undefined;
  /** Is told of a text that takes 70 % or more of what the register can hold. */
  readonly onFilling?: ((filling: Filling) => void) | undefined;
}

/** How a process reads and writes its store. It believes no older backup, and no other history than the one that it has seen. */
export interface StoreAccess {
  /** The newest that was read. */
  readonly last: Seen | undefined;
  /**
   * @param options.confirmed the answer is not that of a primary which another one has replaced
   * @throws StoreError `ERR_STORE_UNAVAILABLE` (also after 10 s without an answer), `ERR_RECORDS_INVALID`; and what `Custody.open` throws
   */
  read(options?: { readonly confirmed?: boolean }): Promise<Seen>;
  /**
   * Reads, lets `decide` change the document, and commits. If another commit came first, starts again.
   *
   * @throws StoreError `ERR_COMMIT_UNKNOWN`: the commit may be written, now or later; reading tells
   * @throws StoreError `ERR_STORE_CONFLICT` after 20 attempts; and what `read` and `decide` throw
   */
  change(decide: (seen: Seen) => Promise<Decision>): Promise<Changed>;
  /** What `change` would do now. */
  preview(decide: (seen: Seen) => Promise<Decision>): Promise<Changed>;
  /** Reports whether an event of a document was committed by this process. */
  isOwn(this: void, event: StoredEvent, document: StoreDocument): boolean;
  /** Writes the presence record of this process into the store, if its register has presence records. */
  present(id: string, record: string): Promise<void>;
  /** Removes the presence records of processes that have ended. */
  forget(ids: readonly string[]): Promise<void>;
  /** Lists the presence records of all processes. */
  presence(): Promise<PresenceList>;
}

export function createStoreAccess(custody: Custody, options: StoreAccessOptions): StoreAccess {
  const { register } = custody;
  const { policy, clock, signal, onCall, onRevision, onFilling } = options;
  const { maxBytes = Infinity } = register;
  let last: Seen | undefined;
  /** The latest commits with events that this process tried. Only ids that a document contains were written. */
  let tried: readonly { readonly commit: string; readonly events: readonly StoredEvent[] }[] = [];

  /** Waits for at most 10 s, even if the store ignores the signal. */
  async function call<T>(
    operation: StoreOperation,
    work: (signal: AbortSignal) => Promise<T>,
    code: "ERR_STORE_UNAVAILABLE" | "ERR_COMMIT_UNKNOWN" = "ERR_STORE_UNAVAILABLE",
  ): Promise<T> {
    const expired = (): Error => new StoreError(code, `the store has not answered within ${storeMs / 1000} s`);
    try {
      const answer = await traced(`jwksd store ${operation}`, {}, () =>
        withDeadline(work, { clock, timeoutMs: storeMs, signal, expired }),
      );
      onCall?.(operation, {});
      return answer;
    } catch (thrown) {
      // The error of a driver: a reply was lost, for example.
      const said = `store ${operation} failed: ${printable((thrown as Partial<Error> | undefined)?.message ?? "")}`;
      const error = thrown instanceof JwksdError ? thrown : new StoreError(code, said, { cause: thrown });
      onCall?.(operation, { error });
      throw error;
    }
  }

  async function read({ confirmed = false } = {}): Promise<Seen> {
    // As it was before the store was asked: another read of this process may end before this one.
    const before = last;
    const asked = instantNow(clock);
    const found = await call("read", async (signal) => {
      const reading = await register.read(before?.version, { signal, confirmed });
      const fault = faultOf(reading, before?.version);
      if (fault === undefined) return reading;
      throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${register.name} returned ${fault}; correct its read()`);
    });
    const answered = instantNow(clock);
    const isKnown = found.version !== undefined && found.version === before?.version;
    const document = isKnown ? before.document : await documentOf(found);
    if (before !== undefined) checkIsLater(document, before.document);
    const hasClock = found.now !== undefined;
    const now = found.now ?? epochMs(answered.wall);
    const seen = { document, version: found.version, now, hasClock, asked, answered };
    if (last === undefined || last.document.revision <= document.revision) last = seen;
    onRevision?.(last.document.revision);
    return seen;
  }

  async function documentOf({ text }: Reading): Promise<StoreDocument> {
    if (text === undefined) return emptyDocument(custody.owner, policy);
    const bytes = textBytes(text);
    if (bytes >= maxBytes * warnedShare) onFilling?.({ bytes, maxBytes });
    return custody.open(text);
  }

  /**
   * Writes once. Resolves to `undefined` where nobody knows whether it was written.
   *
   * @throws StoreError where it was certainly not written
   */
  async function tryWrite({ text, ifVersion, due, commit }: Commit): Promise<boolean | undefined> {
    const write = (signal: AbortSignal): Promise<boolean> => register.write(text, ifVersion, { signal, due });
    const isWritten = await call("write", write, "ERR_COMMIT_UNKNOWN").catch((error: unknown) => {
      signal.throwIfAborted();
      if (error instanceof StoreError && error.code !== "ERR_COMMIT_UNKNOWN") throw error;
      return undefined;
    });
    if (isWritten !== false) return isWritten;
    // A driver that repeats a statement answers `false` to a write that was written.
    return read().then(
      ({ document }) => document.commits.includes(commit),
      () => undefined,
    );
  }

  /** Resolves to whether the document was written. */
  async function write(
    document: StoreDocument,
    { version, now }: Seen,
    commit: string,
    room: number,
  ): Promise<boolean> {
    const text = await custody.seal(document);
    // Some databases cut off what does not fit, and say that it was written.
    if (textBytes(text) > room) throw full(maxBytes);
    const call = { text, ifVersion: version, due: nextLookAt(document, now), commit };
    const isWritten = await tryWrite(call);
    if (isWritten !== undefined) return isWritten;
    // The same write under the same condition settles that, even if the first one arrives after it.
    const isSettled = await tryWrite(call).catch(() => undefined);
    signal.throwIfAborted();
    if (isSettled !== undefined) return isSettled;
    throw new StoreError("ERR_COMMIT_UNKNOWN", "the store has not said whether a commit was written");
  }

  return {
    get last() {
      return last;
    },

    read,

    async preview(decide) {
      const seen = await read();
      const decision = await decide(seen);
      return changed(seen, decision, nextDocument(seen.document, decision, ""));
    },

    async change(decide) {
      for (let attempt = 1; ; attempt += 1) {
        const seen = await read();
        const decision = await decide(seen);
        if (isNothing(decision, seen.document)) return changed(seen, decision, seen.document);
        const commit = crypto.randomUUID();
        const room = maxBytes - reservedBytes;
        const document = nextDocument(seen.document, { owner: custody.owner, ...decision }, commit, room);
        const lastNumber = seen.document.events.at(-1)?.number ?? 0;
        const events = document.events.filter(({ number }) => number > lastNumber);
        if (events.length > 0) tried = [...tried, { commit, events }].slice(-document.commits.length - 1);
        const isRevocation = decision.events?.some(({ type }) => type === "revoked") === true;
        if (await write(document, seen, commit, isRevocation ? maxBytes : room)) {
          // A failover may lose the commit before it was read. Its version is not known yet.
          last = { ...seen, document, version: undefined };
          onRevision?.(document.revision);
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
      // Not under the signal of the manager, which has aborted when the process ends.
      const drop = async (signal: AbortSignal): Promise<void> => presence?.drop(ids, { signal });
      await withDeadline(drop, { clock, timeoutMs: forgetMs, expired: () => new Error("no answer") });
    },

    presence: () => call("presence", (signal) => listPresence(register.presence, { signal })),
  };
}

/** Describes what no register may return; a time that is not a number would make every wake-up due. */
function faultOf({ version, text, now }: Reading, known: string | undefined): string | undefined {
  const strings: readonly unknown[] = [version ?? "", text ?? ""];
  if (now !== undefined && !isDate(now)) return "a time that is not a number of epoch milliseconds";
  if (strings.some((value) => typeof value !== "string")) return "a version or a document that is not a string";
  const isKnown = version !== undefined && version === known;
  return isKnown || (version === undefined) === (text === undefined) ? undefined : "a version without its document";
}

const changed = (seen: Seen, { events = [] }: Decision, document: StoreDocument): Changed => ({
  seen,
  document,
  before: seen.document.records,
  records: document.records,
  events,
});

/** Whether a decision changes nothing. */
function isNothing({ events = [], ...changed }: Decision, document: StoreDocument): boolean {
  return (
    events.length === 0 &&
    Object.entries(changed).every(([name, value]) => value === document[name as keyof StoreDocument])
  );
}

/**
 * Refuses a store that was put back to an older backup, or that has lost commits in a failover: it knows nothing of a key that this process has
 * seen revoked, for example.
 *
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
function checkIsLater(found: StoreDocument, seen: StoreDocument): void {
  const commit = seen.commits.at(-1);
  if (commit === undefined || found.commits.includes(commit)) return;
  if (found.revision <= seen.revision) {
    throw older(
      `the store is at revision ${found.revision}, and was at ${seen.revision}: it is empty, or an older backup`,
    );
  }
  // After so many commits nobody can tell by their ids.
  if (found.revision < seen.revision + found.commits.length) {
    throw older(
      `the store has lost revision ${seen.revision}: it is an older backup to which others have written since`,
    );
  }
  checkNotRolledBack(found.records, seen.records);
}

const older = (what: string): StoreError =>
  new StoreError("ERR_RECORDS_INVALID", `${what}; put the newest one back, or restart to go on with this one`);

const full = (maxBytes: number): StoreError =>
  new StoreError(
    "ERR_STORE_FULL",
    `nothing was changed: the text would be larger than the store can hold (${maxBytes.toLocaleString("en")} bytes); copy the keys into a store that can hold more: jwksd store migrate`,
  );

const conflict = (): StoreError =>
  new StoreError("ERR_STORE_CONFLICT", `another commit came first, ${maxAttempts} times in a row; try again`);

/**
 * Reports whether this machine's clock may differ from the store's by more than the skew. The store read its clock at some moment between
 * the request and the response, so both are compared, each as this machine's clock would show it if it had always been set as it is now.
 */
export function clocksDiffer({ now, hasClock, asked, answered }: Seen, clock: Clock, skewMs: number): boolean {
  if (!hasClock) return false;
  const asSetNow = (instant: Instant): number => epochMs(instant.wall) + setSince(instant, clock);
  return asSetNow(asked) < now - skewMs || asSetNow(answered) > now + skewMs;
}

/** How far the clock of the store is ahead of that of this machine, in milliseconds, which may have been set since the store was read. */
export function clockAheadMs({ now, hasClock, answered }: Seen, clock: Clock): number {
  return hasClock ? now - epochMs(answered.wall) - setSince(answered, clock) : 0;
}

/** States the difference between the clocks, for a message. */
export function clocksText(seen: Seen, clock: Clock): string {
  const aheadMs = clockAheadMs(seen, clock);
  const difference = `${durationText(aheadMs)} ${aheadMs > 0 ? "behind" : "ahead of"}`;
  const allowed = `clockSkewSeconds allows ${seen.document.policy.clockSkewSeconds} s`;
  return `this machine's clock is ${difference} the store's clock, and ${allowed}; correct the wrong clock`;
}

/** By which rules, and when, a command is judged that found this in the store. */
export function atOf(seen: Seen, clock: Clock): At {
  const { policy } = seen.document;
  return { policy, now: seen.now, areClocksOff: clocksDiffer(seen, clock, policy.clockSkewSeconds * 1000) };
}

/** The time of the store now. */
export const storeNow = ({ now, answered }: Seen, clock: Clock): number => now + longestSince(answered, clock);
