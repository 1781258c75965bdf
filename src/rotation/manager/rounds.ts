import { type Clock, type Instant, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import { type JwksdError, asJwksdError, codeOf } from "../../base/errors.ts";
import type { Custody } from "../custody/custody.ts";
import type { StoreDocument } from "../custody/document.ts";
import { type Advance, type At, type View, advance } from "../rules/advance.ts";
import { type KeyRecord, type LiveRecord, activeKey, announcedKey, liveRecords } from "../rules/records.ts";
import { waitOf } from "../rules/waits.ts";
import { type Target, begunTarget, writtenTarget } from "./targets.ts";
import { type Freshness, createFreshness, stale } from "./freshness.ts";
import { unanswered } from "./health.ts";
import type { Keyring } from "./keyring.ts";
import type { KeysInUse } from "./keys-in-use.ts";
import { type Demand, type DemandOptions, type Loop, type RoundResult, createDemand, createLoop } from "./loop.ts";
import { step } from "./step.ts";
import { type Changed, type Seen, type StoreAccess, atOf, clocksDiffer, clocksText, storeNow } from "./store-access.ts";
import type { Subscribers } from "./subscribers.ts";
import type { ManagerEvent } from "./types.ts";
import { createWaitClock } from "./wait-clock.ts";
import { type ProcessName, createWord } from "./word.ts";

/** How often a store is read that cannot tell of changes. */
const pollMs = 1_000;
/** How soon a key that could not sign is tried again, and how soon a clock that was wrong is looked at again. */
const againMs = 60_000;

export interface RoundsOptions {
  readonly custody: Custody;
  readonly access: StoreAccess;
  readonly keyring: Keyring;
  readonly inUse: KeysInUse;
  readonly subscribers: Subscribers;
  readonly process: ProcessName;
  readonly target: Target | undefined;
  /** Rounds only when somebody asks. */
  readonly demand?: Pick<DemandOptions, "refreshMs" | "waitUntil"> | undefined;
  readonly signs: boolean;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly emit: (event: ManagerEvent) => void;
}

export interface Rounds {
  /** By which rules, and when, a command is judged that found this in the store. */
  at(seen: Seen): At;
  readonly freshness: Freshness;
  /** Runs an action between two rounds. */
  run<T>(action: () => Promise<T>): Promise<T>;
  /** A round at once, for the action that runs. @throws as a round does */
  now(): Promise<void>;
  /** A round as soon as nothing else runs. @throws as a round does */
  runDueSteps(): Promise<void>;
  /** A round soon, for somebody who does not wait. */
  wake(this: void): void;
  /** A round for somebody who waits: once a second at most, for all who ask together. */
  ask(this: void): Promise<void>;
  /** Where rounds are made only when somebody asks. */
  readonly fresh?: Demand["fresh"] | undefined;
  stop(): Promise<void>;
}

/** The rounds of a manager: in each it reads the store, does what is due, and takes over what others did. */
export function createRounds(options: RoundsOptions): Rounds {
  const { custody, access, keyring, inUse, subscribers, process, target, signs, clock, signal, emit } = options;
  const ends = { clock, signal, onFailure, onRecovery: () => emit({ type: "recovered" }) };
  const demand =
    options.demand && createDemand(round, { ...ends, ...options.demand, isUsable: () => freshness.leftMs > 0 });
  const loop: Loop = demand ?? createLoop(round, ends);
  const waitClock = createWaitClock(clock);
  /** Announced keys that could not sign when their wait was over, and when they were tried. */
  const activationBlocked = new Map<string, Moment<"monotonic">>();
  const now = (): number => (access.last === undefined ? clock.now() : storeNow(access.last, clock));
  const word = createWord({ custody, access, inUse, process, signs, clock, storeNow: now, emit });
  const freshness = createFreshness({ inUse, seen: () => access.last, signs, clock, signal, emit });

  /** Reads the store, does what is due, and takes over what others did. */
  async function round(): Promise<RoundResult> {
    // Of this round: another one may be under way where no process lives on, and have a later word.
    let { sent } = word;
    if (word.dueInMs === 0) {
      sent = await word.have().catch(async (error: unknown) => {
        // What others have changed is taken over, even if this process has no word with the store.
        if (inUse.state.document !== undefined) await takeOver(sent).catch(() => {});
        throw error;
      });
    }
    const publish = ({ document }: Changed): Promise<void> => adopt(document, sent);
    if (target !== undefined) await recordTarget(({ document, now }) => begunTarget(document, target.name, now));
    await step({ custody, keyring, process: process.id, caller: { plan, publish, holdBack } });
    await word.tell();
    freshness.note();
    // What a subscriber has not taken, or what was not opened, is tried again after these errors.
    subscribers.check();
    if (inUse.unavailable !== undefined) throw inUse.unavailable;
    const { revision = 0 } = inUse.state.document ?? {};
    if (target !== undefined)
      await recordTarget(({ document, now }) => writtenTarget(document, target.name, revision, now));
    return { wakeInMs: wakeInMs(), isPending: isMakingNext() };
  }

  async function recordTarget(targetsAfter: (seen: Seen) => StoreDocument["targets"]): Promise<void> {
    await access.change(async (seen) => ({ targets: targetsAfter(seen) }));
  }

  async function takeOver(sent: Instant | undefined): Promise<void> {
    await adopt((await access.read()).document, sent);
  }

  /** Plans what is due; nothing where the clock of this machine and that of the store differ, because one of them is wrong. */
  function plan(records: readonly KeyRecord[], seen: Seen): Advance | undefined {
    const { document, now, hasClock } = seen;
    if (clocksDiffer(seen, clock, document.policy.clockSkewSeconds * 1000)) {
      if (records.length === 0) throw stale(clocksText(seen, clock));
      return undefined;
    }
    if (!hasClock) waitClock.note(seen);
    return planAt(records, seen, now);
  }

  function planAt(records: readonly KeyRecord[], { document, hasClock }: Seen, now: number): Advance {
    const { policy, targets } = document;
    const cannotSign = new Set([...activationBlocked].flatMap(([kid, at]) => (againInMs(at) > 0 ? [kid] : [])));
    const leftMs: View["leftMs"] = hasClock ? undefined : (record, wait) => waitClock.leftMs(record, wait, now);
    return advance(records, policy, now, { targets, cannotSign, leftMs });
  }

  const againInMs = (triedAt: Moment<"monotonic">): number => againMs - msBetween(triedAt, monotonicNow(clock));

  /** How long it is until the next round, in milliseconds. The plan decides at each wake-up anew: a timer may be early, and clocks may be set. */
  function wakeInMs(): number {
    const { last } = access;
    if (last === undefined) return 0;
    const { document } = last;
    const polls = custody.register.watch === undefined ? pollMs : Infinity;
    if (clocksDiffer(last, clock, document.policy.clockSkewSeconds * 1000))
      return Math.min(polls, againMs, word.dueInMs);
    const ahead = planAt(document.records, last, now());
    if (ahead.due.length > 0 || ahead.records !== document.records) return 0;
    const retries = [...activationBlocked.values()].map(againInMs).filter((ms) => ms > 0);
    return Math.max(Math.min(ahead.wakeAt - now(), word.dueInMs, polls, ...retries), 0);
  }

  function at(seen: Seen): At {
    const { records, policy } = seen.document;
    const { now, areClocksOff = false } = atOf(seen, clock);
    // By the wall clock a wait may seem over that the monotonic clock has not seen end.
    const seemsOver = (record: LiveRecord): boolean => {
      const { since, forMs = 0 } = waitOf(record, policy) ?? {};
      return since !== undefined && since + forMs <= now && waitClock.leftMs(record, { since, forMs }, now) > 0;
    };
    return { policy, now, areClocksOff: areClocksOff || (!seen.hasClock && liveRecords(records).some(seemsOver)) };
  }

  async function adopt(document: StoreDocument, sent: Instant | undefined): Promise<void> {
    freshness.note();
    if (sent === undefined) return;
    await inUse.adopt(document, sent);
    const announced = new Set(document.records.flatMap(({ kid, state }) => (state === "announced" ? [kid] : [])));
    for (const kid of activationBlocked.keys()) if (!announced.has(kid)) activationBlocked.delete(kid);
  }

  function holdBack(kid: string, error: JwksdError): void {
    activationBlocked.set(kid, monotonicNow(clock));
    emit({ type: "activation-blocked", kid, error });
  }

  /** After a failure to make the next key, only the next attempt shows whether making keys works again. */
  function isMakingNext(): boolean {
    const { records } = inUse;
    return activeKey(records, "sig")?.nextMadeBy?.process === process.id && announcedKey(records, "sig") === undefined;
  }

  async function onFailure(error: unknown, retryInMs: number): Promise<void> {
    const hasStarted = inUse.state.document !== undefined;
    // `createKeyManager` throws the error, unless it reads on demand.
    if (!hasStarted && demand === undefined) return;
    emit({ type: "failed", error: asJwksdError(error), retryInMs, staleAt: clock.now() + freshness.leftMs });
    freshness.note();
    if (!hasStarted) return;
    if (unanswered.has(codeOf(error)) || freshness.error !== undefined) await inUse.shorten();
  }

  return {
    at,
    freshness,
    run: (action) => loop.run(action),
    now: () => loop.ended(round()),
    runDueSteps: () => loop.round(),
    wake: () => loop.wake(),
    ask: () => loop.ask(),
    fresh: demand && (() => demand.fresh()),
    stop: () => loop.stop(),
  };
}
