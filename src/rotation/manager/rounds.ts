import { type Instant, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import { asJwksdError, codeOf } from "../../base/errors.ts";
import type { DocumentChange, StoreDocument } from "../custody/document.ts";
import { rewrap } from "../custody/rewrap.ts";
import { type Advance, type At, type KeyChange, type View, advance } from "../rules/advance.ts";
import { announce } from "../rules/commands.ts";
import {
  type KeyRecord,
  type LiveRecord,
  activeKey,
  announcedKey,
  liveRecords,
  nextAlg,
} from "../rules/key-records.ts";
import { announceNext, reserveNextKey, reasonForNext } from "../rules/reserve-next-key.ts";
import { namedTarget, writtenTarget } from "../rules/target-records.ts";
import { waitOf } from "../rules/waits.ts";
import { type CheckIn, stale } from "./check-in.ts";
import type { ManagerContext } from "./context.ts";
import type { CurrentKeys } from "./current-keys.ts";
import { CannotSign, type Keyring } from "./key-changes.ts";
import { type Changed, unanswered } from "./store-access.ts";
import { type Seen, atOf, clocksDiffer, clocksText, createWaitClock } from "./store-clock.ts";

/** Interval between reads of a store that cannot report changes, in milliseconds. */
const pollMs = 1_000;
/** Delay before rechecking a key that could not sign or a clock that was wrong, in milliseconds. */
const againMs = 60_000;

/** Result of a successful round. */
export interface RoundResult {
  /** Time until the next round, in milliseconds; `Infinity` for never. */
  readonly wakeInMs: number;
  /** Whether work that failed earlier is still pending. */
  readonly isPending: boolean;
}

/** The rounds of a manager. Each round reads the store, takes the due steps, and publishes the result. */
export interface Rounds {
  /** Whether a round has read keys. */
  readonly hasStarted: boolean;
  /** Runs a round. @throws StoreError, SignerError, and errors from subscribers */
  run(): Promise<RoundResult>;
  /** Reports that a round has failed. Switches to the short Cache-Control if the document may be out of date. */
  onFailure(error: unknown, retryInMs: number): Promise<void>;
  /** Returns the policy and the time that apply to a command after this read. */
  at(seen: Seen): At;
}

export function createRounds(context: ManagerContext, keyring: Keyring, inUse: CurrentKeys, checkIn: CheckIn): Rounds {
  const { custody, access, clock, report, process, target } = context;
  const waitClock = createWaitClock(clock);
  /** Announced keys that could not sign at the end of their propagation period, with the time of the last attempt. */
  const blocked = new Map<string, Moment<"monotonic">>();

  async function run(): Promise<RoundResult> {
    const { sent, found } = await checkInIfDue();
    if (target !== undefined) await recordTarget(({ document, now }) => namedTarget(document, target.name, now));
    // With a target, the store has a later document, in which the target is recorded.
    await takeDueSteps(sent, target === undefined ? found : undefined);
    await checkIn.updatePresence();
    checkIn.reportChange();
    // Throws if an update has failed or a key could not be opened, so that the next round tries again.
    inUse.check();
    const { revision = 0 } = inUse.document ?? {};
    if (target !== undefined)
      await recordTarget(({ document, now }) => writtenTarget(document, target.name, revision, now));
    return { wakeInMs: wakeInMs(), isPending: isMakingNext() };
  }

  /**
   * Checks in if a check-in is due. Returns the time at which this round's check-in was sent. That time is returned
   * because, with `onDemand`, a concurrent round may have sent a later one.
   */
  async function checkInIfDue(): Promise<{ readonly sent: Instant | undefined; readonly found?: Seen }> {
    const { sent, dueInMs } = checkIn;
    if (dueInMs > 0) return { sent };
    try {
      return await checkIn.run();
    } catch (error) {
      // Even if the check-in fails, this process adopts other processes' changes.
      if (inUse.document !== undefined)
        await access.read().then(
          ({ document }) => adopt(document, sent),
          () => {},
        );
      throw error;
    }
  }

  async function recordTarget(targetsAfter: (seen: Seen) => StoreDocument["targets"]): Promise<void> {
    await access.change((seen) => ({ targets: targetsAfter(seen) }));
  }

  /** Takes the due steps and adopts the result. Repeats this until a read finds nothing left to do. */
  async function takeDueSteps(sent: Instant | undefined, found: Seen | undefined): Promise<void> {
    for (let last = found; ; last = undefined) {
      const change = await commitDueSteps(sent, last);
      await adopt(change.document, sent);
      const next = keyring.isExternal ? await announceExternalKey(change) : undefined;
      if (next !== undefined) await adopt(next.document, sent);
      else if (change.document === change.seen.document) return;
    }
  }

  /** Commits all due steps. A key that cannot sign stays announced. */
  async function commitDueSteps(sent: Instant | undefined, last: Seen | undefined): Promise<Changed> {
    for (;;) {
      let found: StoreDocument | undefined;
      try {
        return await keyring.change(
          (seen) => {
            found = seen.document;
            return dueSteps(seen);
          },
          undefined,
          last,
        );
      } catch (error) {
        if (error instanceof CannotSign) {
          blocked.set(error.kid, monotonicNow(clock));
          report({ type: "activation-blocked", kid: error.kid, error: asJwksdError(error.cause) });
          continue;
        }
        // Even without write access, this process adopts other processes' changes.
        if (found !== undefined && found.records.length > 0) await adopt(found, sent);
        throw error;
      }
    }
  }

  /** Returns all due steps. Includes the new keys, except for those to be generated in an HSM or key service. */
  async function dueSteps(seen: Seen): Promise<DocumentChange> {
    const { records } = seen.document;
    const reason = `the issuer ${JSON.stringify(custody.owner.issuer)} was chosen`;
    const moved: KeyChange = custody.movesIssuer
      ? await rewrap(records, custody, seen.now, reason)
      : { records, events: [] };
    const planned = plan(moved.records, seen);
    if (planned === undefined) return {};
    let change: KeyChange = { records: planned.records, events: [...moved.events, ...planned.events] };
    for (const use of planned.due) {
      if (use === "sig" && keyring.isExternal) continue;
      const key = await keyring.makeKey(use, nextAlg(change.records, use));
      change = announce(change, key, seen.now, reasonForNext(change.records.length === 0));
    }
    return change;
  }

  /**
   * Generates the next signing key in its HSM or key service, if one is due. Only one process does so, because
   * otherwise, surplus keys would be left there.
   */
  async function announceExternalKey({ records, seen }: Changed): Promise<Changed | undefined> {
    if (plan(records, seen)?.due.includes("sig") !== true) return undefined;
    // While there are no keys, no record can name the process that generates the first one.
    if (records.length > 0) {
      const left = await keyring.change(({ document, now }) => ({
        records: reserveNextKey(process.id, document.records, document.policy, now),
      }));
      if (left.records === left.before) return undefined;
    }
    const key = await keyring.makeKey("sig", "ES256");
    return keyring.change(({ document, now }) => announceNext(document.records, key, document.policy, now), key);
  }

  async function adopt(document: StoreDocument, sent: Instant | undefined): Promise<void> {
    checkIn.reportChange();
    if (sent === undefined) return;
    await inUse.adopt(document, sent);
    const announced = new Set(document.records.flatMap(({ kid, state }) => (state === "announced" ? [kid] : [])));
    for (const kid of blocked.keys()) if (!announced.has(kid)) blocked.delete(kid);
  }

  /**
   * Plans the due steps. If this machine's clock and the store's clock differ, one of them is wrong, and no step is
   * taken.
   *
   * @throws SignerError `ERR_SIGNER_STALE` if the clocks differ and there are no keys yet
   */
  function plan(records: readonly KeyRecord[], seen: Seen): Advance | undefined {
    if (clocksDiffer(seen, clock)) {
      if (records.length === 0) throw stale(clocksText(seen, clock));
      return undefined;
    }
    if (!seen.hasClock) waitClock.record(seen);
    return planAt(records, seen, seen.now);
  }

  function planAt(records: readonly KeyRecord[], { document, hasClock }: Seen, now: number): Advance {
    const { policy, targets } = document;
    const cannotSign = new Set([...blocked].flatMap(([kid, at]) => (againInMs(at) > 0 ? [kid] : [])));
    const leftMs: View["leftMs"] = hasClock ? undefined : (record, wait) => waitClock.leftMs(record, wait, now);
    return advance(records, policy, now, { targets, cannotSign, leftMs });
  }

  const againInMs = (triedAt: Moment<"monotonic">): number => againMs - msBetween(triedAt, monotonicNow(clock));

  /**
   * Returns the time until the next round, in milliseconds. Each round plans again, because a timer may fire early and
   * a clock may be changed.
   */
  function wakeInMs(): number {
    const { last, now } = access;
    if (last === undefined) return 0;
    const { records } = last.document;
    const polls = custody.register.watch === undefined ? pollMs : Infinity;
    if (clocksDiffer(last, clock)) return Math.min(polls, againMs, checkIn.dueInMs);
    const ahead = planAt(records, last, now);
    if (ahead.due.length > 0 || ahead.records !== records) return 0;
    const retries = [...blocked.values()].map(againInMs).filter((ms) => ms > 0);
    return Math.max(Math.min(ahead.wakeAt - now, checkIn.dueInMs, polls, ...retries), 0);
  }

  /**
   * Reports whether this process still has to generate the next key. Until it has done so, an earlier failure is not
   * resolved.
   */
  function isMakingNext(): boolean {
    const { records } = inUse;
    return activeKey(records, "sig")?.nextMadeBy?.process === process.id && announcedKey(records, "sig") === undefined;
  }

  return {
    get hasStarted() {
      return inUse.document !== undefined;
    },

    run,

    async onFailure(error, retryInMs) {
      report({ type: "failed", error: asJwksdError(error), retryInMs, staleAt: clock.now() + checkIn.leftMs });
      checkIn.reportChange();
      const mayBeOld = unanswered.has(codeOf(error)) || checkIn.error !== undefined;
      if (mayBeOld && inUse.document !== undefined) await inUse.shorten();
    },

    at(seen) {
      const { now, areClocksOff = false, policy } = atOf(seen, clock);
      // A waiting period may be over according to the wall clock but not yet according to the monotonic clock.
      const seemsOver = (record: LiveRecord): boolean => {
        const { since, forMs = 0 } = waitOf(record, policy) ?? {};
        return since !== undefined && since + forMs <= now && waitClock.leftMs(record, { since, forMs }, now) > 0;
      };
      const isUnsure = !seen.hasClock && liveRecords(seen.document.records).some(seemsOver);
      return { policy, now, areClocksOff: areClocksOff || isUnsure };
    },
  };
}
