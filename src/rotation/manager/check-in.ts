import { type Instant, instantNow, longestSince } from "../../base/clock.ts";
import { SignerError, StoreError, asJwksdError } from "../../base/errors.ts";
import { durationText, someOf } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import type { StoreDocument } from "../custody/document.ts";
import { type PresenceRecord, type Processes, presenceText, livePresence } from "../custody/presence-records.ts";
import { decommissionedText } from "../rules/decommission.ts";
import { activeKey, isDecommissioned, isLive } from "../rules/key-records.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import type { ManagerContext } from "./context.ts";
import type { CurrentKeys, Published } from "./current-keys.ts";
import { type Seen, clocksDiffer, clocksText } from "./store-clock.ts";

/** Check-ins per `maxStaleSeconds`. */
const perStale = 6;
/**
 * The fraction of `maxStaleSeconds` that a process leaves unused as a safety margin, because clocks run at different
 * rates.
 */
const margin = 0.01;

/** Returns how long a read may be used, in milliseconds. */
export const usableMs = ({ maxStaleSeconds }: RotationPolicy): number => maxStaleSeconds * 1000 * (1 - margin);

/**
 * Checks in with the store and decides whether this process may sign. A process is ready and signs only if its last
 * read followed a check-in that was sent less than `maxStaleSeconds` ago. The time is measured by the process's
 * monotonic clock or its wall clock, whichever has advanced further. Every waiting period in a rotation includes
 * `maxStaleSeconds`.
 */
export interface CheckIn {
  /** Time at which the last check-in was sent. */
  readonly sent: Instant | undefined;
  /** Time until the next check-in is due, in milliseconds. */
  readonly dueInMs: number;
  /**
   * Writes this process's presence record and then reads the store. Both operations prove that the store is the primary
   * and has not been replaced. Resolves to the time at which the check-in was sent and the result of the read.
   */
  run(): Promise<{ readonly sent: Instant; readonly found: Seen }>;
  /** Writes this process's presence record if it has changed. */
  updatePresence(): Promise<void>;
  /** Lists the processes that may currently serve or sign, according to their presence records. @throws StoreError */
  processes(this: void): Promise<Processes>;
  /** Reason why this process does not sign and is not ready, or `undefined` while it may sign. */
  readonly error: SignerError | undefined;
  /** Time until this process is stale, in milliseconds. */
  readonly leftMs: number;
  /** If this process has become stale or fresh, reports the change. */
  reportChange(): void;
  /**
   * Returns a function that throws if this process must not sign with a key, according to what it has read so far. Call
   * it before signing, and again before returning the signature.
   */
  permit(kid: string): () => void;
}

/** Reason why a process does not sign. */
type Reason = "closed" | "age" | "clock";

export function createCheckIn(context: ManagerContext, inUse: CurrentKeys): CheckIn {
  const { custody, access, clock, signal, report, process, signs } = context;
  let sent: Instant | undefined;
  let written: string | undefined;
  let reported: Reason | undefined;

  function presence() {
    const { records, keys, published } = inUse;
    const active = activeKey(records, "sig");
    const isSigning = signs && active !== undefined && keys.signers.has(active.kid);
    return {
      ...process,
      revision: published?.document.revision ?? 0,
      commit: published?.document.commits.at(-1),
      kid: isSigning ? active.kid : undefined,
      signs,
      wrappingKeys: custody.wrappingKeys,
    };
  }

  async function writePresence(): Promise<void> {
    const next = presence();
    await access.present(process.id, presenceText({ ...next, at: access.now })).catch((error: unknown) => {
      // A process without write access does not write a presence record.
      if (!(error instanceof StoreError && error.code === "ERR_STORE_READ_ONLY")) throw error;
    });
    written = JSON.stringify(next);
  }

  /**
   * Reports a store that has no keys even though processes are using it. Deletes the presence records of processes that
   * are no longer running.
   */
  async function sweep(found: StoreDocument): Promise<void> {
    const list = await access.presence();
    const { processes } = livePresence(list, access.now, found);
    const others = processes.filter(({ revision }) => revision > 0);
    // Another process may have generated the first keys after the read.
    const isEmptied = found.revision === 0 && others.length > 0 && (await access.read()).document.revision === 0;
    if (isEmptied) report({ type: "store-emptied", error: emptied(custody.owner.issuer, others, access.now) });
    const live = new Set(processes.map(({ id }) => id));
    const ended = [...list.records.keys()].filter((id) => !live.has(id));
    if (ended.length > 0) await access.forget(ended);
  }

  /**
   * Returns how much longer a document may be published, in milliseconds. The document's own policy applies, because a
   * later policy may allow more time.
   */
  const leftMs = (published: Published | undefined): number =>
    published === undefined ? 0 : usableMs(published.document.policy) - longestSince(published.confirmed, clock);

  function reasonNotToSign(published: Published | undefined): Reason | undefined {
    if (signal.aborted) return "closed";
    if (leftMs(published) <= 0) return "age";
    // The times in tokens come from this machine's clock, and waiting periods assume that it is off by no more than the
    // skew.
    const isOff = signs && access.last !== undefined && clocksDiffer(access.last, clock, inUse.document?.policy);
    return isOff ? "clock" : undefined;
  }

  function errorOf(reason: Reason | undefined): SignerError | undefined {
    switch (reason) {
      case "closed":
        return stale("its key manager was closed");
      case "age":
        return stale("it has not checked in with its store for maxStaleSeconds");
      case "clock":
        return access.last && stale(clocksText(access.last, clock));
      default:
        return undefined;
    }
  }

  return {
    get sent() {
      return sent;
    },
    get dueInMs() {
      const { document } = inUse;
      if (document === undefined || sent === undefined) return 0;
      return Math.max((document.policy.maxStaleSeconds * 1000) / perStale - longestSince(sent, clock), 0);
    },
    async run() {
      const next = instantNow(clock);
      await writePresence();
      const found = await access.read({ confirmed: true });
      // Presence records are only information for operators, so a failure does not matter.
      await sweep(found.document).catch(() => {});
      sent = next;
      return { sent: next, found };
    },
    async updatePresence() {
      if (JSON.stringify(presence()) !== written) await writePresence();
    },
    async processes() {
      const list = await access.presence();
      const { document } = inUse;
      return document === undefined ? { processes: [], unread: 0 } : livePresence(list, access.now, document);
    },
    get error() {
      return errorOf(reasonNotToSign(inUse.published));
    },
    get leftMs() {
      return Math.max(leftMs(inUse.published), 0);
    },
    reportChange() {
      if (signal.aborted || inUse.published === undefined) return;
      const before = reported;
      reported = reasonNotToSign(inUse.published);
      if (reported === before) return;
      const error = errorOf(reported);
      report(error === undefined ? { type: "fresh" } : { type: "stale", error });
    },
    permit(kid) {
      const { published } = inUse;
      return () => {
        const error = errorOf(reasonNotToSign(published));
        if (error !== undefined) throw error;
        if (isDecommissioned(inUse.records)) throw new SignerError("ERR_SIGNER_DECOMMISSIONED", decommissionedText);
        const isPublished = inUse.records.some((record) => record.kid === kid && isLive(record));
        if (!isPublished)
          throw stale(`kid ${JSON.stringify(kid)} was revoked or removed; get the key again for each request`);
        const cause = signs ? inUse.keys.unavailable.get(kid) : undefined;
        if (cause === undefined) return;
        const message = `this process cannot open the key with kid ${JSON.stringify(kid)}`;
        throw new SignerError("ERR_SIGNER_UNAVAILABLE", message, { cause });
      };
    },
  };
}

export function stale(why: string, cause?: unknown): SignerError {
  return new SignerError("ERR_SIGNER_STALE", `this process cannot sign at the moment: ${why}`, { cause });
}

export const staleBecause = (cause: unknown): SignerError =>
  cause instanceof SignerError ? cause : stale(`its store could not be read: ${asJwksdError(cause).message}`, cause);

function emptied(issuer: string, processes: readonly PresenceRecord[], now: number): StoreError {
  const named = someOf(
    processes,
    ({ name, at }) => `"${printable(name)}" (last check-in ${durationText(now - at)} ago)`,
  );
  return new StoreError(
    "ERR_STORE_EMPTY",
    `the store has no keys, but other processes for ${issuer} are running: ${named}; stop this process, and if the store was emptied, see "A lost store" in docs/emergencies.md`,
  );
}
