import { type Clock } from "../../base/clock.ts";
import { type ErrorCode, type JwksdError, StoreError, asJwksdError, codeOf } from "../../base/errors.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { isWaitingForReplicas } from "../rules/waits.ts";
import type { KeyRecord } from "../store/store.ts";
import type { Custody } from "../custody/custody.ts";
import type { Clocks } from "./clocks.ts";
import type { Changed, Seen } from "./compare-and-set.ts";
import { unanswered } from "./health.ts";
import type { Keyring } from "./keyring.ts";
import type { KeysInUse } from "./keys-in-use.ts";
import { type RoundResult, createLoop } from "./loop.ts";
import type { Fence, Replica } from "./replica.ts";
import type { Schedule } from "./schedule.ts";
import { type Planned, isMakingNext, step } from "./step.ts";
import type { Subscribers } from "./subscribers.ts";
import type { ManagerEvent } from "./types.ts";

/** How many times a round is tried in a row after an error that another replica caused. */
const roundAttempts: ReadonlyMap<string, number> = new Map<ErrorCode, number>([
  ["ERR_LEASE_ENDED", 2],
  ["ERR_STORE_CONFLICT", 5],
]);

interface Parts {
  readonly custody: Custody;
  readonly policy: RotationPolicy;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly emit: (event: ManagerEvent) => void;
  readonly keyring: Keyring;
  readonly subscribers: Subscribers;
  readonly replica: Replica;
  readonly clocks: Clocks;
  readonly schedule: Schedule;
  readonly fence: Fence;
  readonly inUse: KeysInUse;
}

/** The rounds of a manager: in each it looks at the store, does what is due, takes over what others did, and reports to them. */
export function createRounds(parts: Parts) {
  const { custody, policy, clock, signal, emit, keyring, subscribers, replica, clocks, schedule, fence, inUse } = parts;
  const leaseMs = policy.leaseSeconds * 1000;
  /** The id by which a record names this process when it makes the next external key. */
  const maker = crypto.randomUUID();
  const loop = createLoop(round, { clock, signal, onFailure, onRecovery: () => emit({ type: "recovered" }) });
  /** Whether the store has to be looked at, whatever the plan says: it has changed, or the last look has failed. */
  let mustLook = true;

  /**
   * Runs a round. If another replica has ended the lease, joins anew at once. If another replica was quicker with a commit, looks again at
   * once. If that fails several times, waits as after any failure.
   */
  async function round(): Promise<RoundResult> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await takeRound();
      } catch (error) {
        const attempts = error instanceof StoreError ? (roundAttempts.get(error.code) ?? 1) : 1;
        if (attempt >= attempts) throw error;
      }
    }
  }

  /**
   * How long it is until the store has to be looked at, in milliseconds. The plan decides that at each wake-up anew, because a timer may
   * be early and clocks may be set: what is due and not done is still due.
   */
  function lookInMs(): number {
    const { records, revision } = inUse.state;
    if (mustLook || replica.lastReported.publishes !== revision) return 0;
    const everyMs = isWaitingForReplicas(records, policy) ? Math.min(Math.max(leaseMs / 60, 250), 60_000) : leaseMs;
    return Math.max(Math.min(schedule.dueInMs(records), inUse.drainsInMs, everyMs - clocks.sinceLookMs()), 0);
  }

  /** Does what is due, takes over what others did, and reports to them. */
  async function takeRound(): Promise<RoundResult> {
    await replica.join().catch(async (error: unknown) => {
      // Changes of other replicas are taken over, even if this one cannot write.
      if (inUse.state.records.length > 0) await takeOver().catch(() => {});
      throw error;
    });
    const isRenewed = lookInMs() > 0 && (await replica.report(replica.lastReported)) === inUse.state.revision;
    if (!isRenewed) {
      mustLook = true;
      await step({ custody, keyring, maker, caller: { plan, publish, holdBack, orphaned } });
      mustLook = false;
    }
    noteFence();
    // A subscriber that failed is tried again after this error.
    subscribers.check();
    // After a failure to make the next key, only the next attempt shows whether making keys works again.
    const isPending = isMakingNext(inUse.state.records, maker);
    return { wakeInMs: Math.min(lookInMs(), replica.renewInMs), isPending };
  }

  /** Adopts the changes of other replicas, and writes nothing. */
  async function takeOver(): Promise<void> {
    const found = await keyring.preview((records) => ({ records, events: [] }));
    clocks.look(found.seen);
    await inUse.adopt({ ...found, records: found.before });
  }

  /** Plans what is due by the clocks that this process has seen, for the replicas whose leases have not ended. */
  async function plan(records: readonly KeyRecord[], seen: Seen): Promise<Planned> {
    const { counted, over } = clocks.look(seen);
    // A store that was put back from a backup has lost the lease. This throws ERR_LEASE_ENDED then, and the next attempt joins anew.
    if (seen.leases.every(({ id }) => id !== replica.id)) await replica.report(replica.lastReported);
    for (const lease of over) await replica.end(lease);
    schedule.forgetTaken(records, seen.now);
    const asSeen = schedule.withWaitsAsSeen(records, seen.now);
    const planned = schedule.plan(asSeen, seen.now, { revision: seen.revision, leases: counted });
    return planned.reliesOnReplicas
      ? { ...planned, leases: seen.leases.filter((lease) => !over.includes(lease)) }
      : planned;
  }

  /** Takes the keys into use, and reports that to the others. */
  async function publish(change: Changed): Promise<boolean> {
    noteFence();
    await inUse.adopt(change);
    return inUse.acknowledge();
  }

  function holdBack(kid: string, error: JwksdError): void {
    schedule.holdBack(kid);
    emit({ type: "held-back", kid, error });
  }

  const orphaned = (uri: string, isDestroyed: boolean): void => emit({ type: "orphaned", uri, isDestroyed });

  /** When this process becomes fenced, or is no longer fenced, the next look reports that in its lease: a fenced process names no kid. */
  function noteFence(): void {
    if (fence.note()) mustLook = true;
  }

  async function onFailure(error: unknown, retryInMs: number): Promise<void> {
    mustLook = true;
    const { records } = inUse.state;
    // Before it has keys, the manager has not started, and `createKeyManager` throws.
    if (records.length === 0) return;
    schedule.noteTried(records);
    emit({ type: "failed", error: asJwksdError(error), retryInMs });
    noteFence();
    if (codeOf(error) === "ERR_LEASE_ENDED" || unanswered.has(codeOf(error))) await inUse.shorten();
  }

  function checkMaySign(kid: string): void {
    noteFence();
    try {
      if (fence.error !== undefined) throw fence.error;
      inUse.checkMaySign(kid);
    } catch (error) {
      // The cause may be gone by now. However many tokens are requested, `ask` looks at the store once a second at most.
      void ask().catch(() => {});
      throw error;
    }
  }

  function ask(): Promise<void> {
    mustLook = true;
    return loop.ask();
  }

  return {
    checkMaySign,
    get isReady() {
      return replica.isReady && fence.error === undefined;
    },
    /** Runs an action between two rounds. */
    run: <T>(action: () => Promise<T>): Promise<T> => loop.run(action),
    /** A round at once, for the action that runs. @throws as a round does */
    now(this: void): Promise<void> {
      mustLook = true;
      return loop.ended(round());
    },
    /** A round as soon as nothing else runs. @throws as a round does */
    look(this: void): Promise<void> {
      mustLook = true;
      return loop.round();
    },
    /** A round soon, for somebody who does not wait. */
    wake(this: void): void {
      mustLook = true;
      loop.wake();
    },
    /** A round for somebody who waits: once a second at most, for all who ask together. */
    ask,
    stop: () => loop.stop(),
  };
}
