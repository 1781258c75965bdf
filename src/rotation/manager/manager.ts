import { notify } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import {
  ConfigError,
  type ErrorCode,
  type JwksdError,
  SignerError,
  StoreError,
  asJwksdError,
} from "../../base/errors.ts";
import type { Given } from "../../base/options.ts";
import type { Change } from "../rules/advance.ts";
import { type Command, type NewKey, applyCommand } from "../rules/commands.ts";
import { rotationPolicy } from "../rules/policy.ts";
import { endOf, nextAlg } from "../rules/records.ts";
import { isWaitingForReplicas } from "../rules/waits.ts";
import { createClocks } from "./clocks.ts";
import { createCopyLease } from "./copy-lease.ts";
import { createCommands } from "./commands.ts";
import { CannotSign, createKeyring } from "./keyring.ts";
import { createKeysInUse } from "./keys-in-use.ts";
import { type RoundResult, createLoop } from "./loop.ts";
import { createHealth } from "./health.ts";
import { managerMetrics } from "./metrics.ts";
import { checkManagerOptions } from "./options.ts";
import { servedBy } from "../custody/issuer-check.ts";
import { keysetsOf } from "./private-keys.ts";
import { type Changed, type Seen, look, ofStore } from "./compare-and-set.ts";
import { type LeaseContent, createReplica, leaseEnded } from "./replica.ts";
import { createSchedule } from "./schedule.ts";
import { createSubscribers } from "./subscribers.ts";
import { type Planned, isMakingNext, step } from "./step.ts";
import type { KeyManager, KeyManagerOptions, ManagerEvent } from "./types.ts";
import type { KeySubscriber } from "../../library/provider/managed-keys.ts";
import type { KeyRecord, KeyUse, StoredEvent } from "../store/store.ts";
import { type Custody, createCustody } from "../custody/custody.ts";
import { readWrappingKeys } from "../custody/wrapping.ts";

/**
 * Starts to manage the keys of one issuer in a store: makes the first key where there is none, and takes every planned step when it is
 * due. Several managers with one store, in any processes, agree by compare-and-set.
 *
 * Between two steps it does nothing. While the store is gone it serves and signs with the keys that it has, and takes no step.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_POLICY_INVALID`,
 * `ERR_WRAPPING_KEY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_NOT_AUTHENTIC`, `ERR_STORE_ISSUER`, `ERR_RECORDS_INVALID`,
 * `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
 * @throws KeyMaterialError `ERR_KEY_MISMATCH`
 * @throws SignerError where the active key is external and cannot be opened
 */
export async function createKeyManager(options: KeyManagerOptions): Promise<KeyManager> {
  const given = checkManagerOptions(options);
  const { issuer, store } = given;
  const keys = await readWrappingKeys(given.wrappingKeys, (index) => `wrappingKeys[${index}]`);
  return manageKeys(createCustody({ store, keys, issuerCheck: servedBy({ issuer, isChosen: true }) }), given);
}

/** Errors of a store that cannot be reached. */
const outages: ReadonlySet<string> = new Set<ErrorCode>([
  "ERR_STORE_UNAVAILABLE",
  "ERR_COMMIT_UNKNOWN",
  "ERR_LEASE_ENDED",
]);

/** How many times a round is tried in a row after an error that another replica caused. */
const roundAttempts: ReadonlyMap<string, number> = new Map<ErrorCode, number>([
  ["ERR_LEASE_ENDED", 2],
  ["ERR_STORE_CONFLICT", 5],
]);

/** How many events of the audit log `observe` gives. */
const maxObserved = 20;

/** A copy of the documents that is served without the process that writes it. */
export interface Copy extends KeySubscriber {
  /** The same for every process that writes this copy. */
  readonly name: string;
}

/** The issuer is that of the custody. */
export interface ManageOptions extends Omit<Given<KeyManagerOptions>, "issuer" | "store" | "wrappingKeys"> {
  /** A copy to publish, in the place of a service. Its lease is permanent once the copy was read back. Such a manager must not sign. */
  readonly copy?: Copy | undefined;
}

/** A manager as the service needs it. */
export interface ServiceManager extends KeyManager {
  /** Does what a command asks for. @throws StateError, StoreError see `applyCommand` and `KeyStore.commit` */
  execute(command: Command): Promise<Change>;
  /** A new key for `execute`, which is in no store yet: made where this manager makes its keys, and wrapped as they are. */
  makeKey(use: KeyUse, alg?: string): Promise<NewKey>;
  /** What this process has last reported to the others. */
  readonly lease: LeaseContent & { readonly id: string | undefined; readonly name: string };
  /** Whether this process has reported to the others that it publishes the newest keys it knows. */
  readonly isAcknowledged: boolean;
  /** Looks at the store, and does what is due. @throws as a round does */
  look(): Promise<void>;
  /** Loads the store to update `health`, and takes no keys over. Gives the newest events of the audit log. @throws StoreError */
  observe(): Promise<readonly StoredEvent[]>;
}

/** Manages the keys in custody. @throws see {@link createKeyManager} */
export async function manageKeys(custody: Custody, options: ManageOptions): Promise<ServiceManager> {
  const { onEvent, copy, signs = copy === undefined } = options;
  const clock = options.clock ?? systemClock;
  const policy = rotationPolicy(options.policy);
  const leaseMs = policy.leaseSeconds * 1000;
  const closing = new AbortController();
  const { signal } = closing;
  const health = createHealth(clock);
  const { onCall } = health;
  const emit = (event: ManagerEvent): void => {
    // A key that did not open because the manager is closed is not held back.
    if (event.type === "held-back" && signal.aborted) return;
    health.note(event);
    notify(onEvent, event);
  };
  const keyring = createKeyring(custody, { ...options, policy, clock, signal, onCall });
  const subscribers = createSubscribers(clock, signal, copy);
  const leaseName = copy?.name ?? options.replicaName ?? "jwksd";
  const lease = { name: leaseName, leaseMs, clock, signal, onCall };
  const replica = copy === undefined ? createReplica(custody.store, lease) : createCopyLease(custody.store, lease);
  const clocks = createClocks(clock, policy.clockSkewSeconds * 1000);
  const schedule = createSchedule(policy, clocks, clock);
  const inUse = createKeysInUse({
    policy,
    keyring,
    replica,
    subscribers,
    signs: () => signs && fence === undefined,
    emit,
  });
  /** The id by which a record names this process when it makes the next external key. */
  const maker = crypto.randomUUID();
  const loop = createLoop(round, { clock, signal, onFailure, onRecovery: () => emit({ type: "recovered" }) });
  /** Whether the store has to be looked at, whatever the plan says: it has changed, or the last look has failed. */
  let mustLook = true;
  /** Why this process may not sign. */
  let fence: SignerError | undefined;

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
    return Math.max(Math.min(schedule.dueInMs(records), everyMs - clocks.sinceLookMs()), 0);
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

  /** Takes over what others did, and writes nothing. */
  async function takeOver(): Promise<void> {
    const found = await keyring.preview((records) => ({ records, events: [] }));
    clocks.look(found.seen);
    await inUse.adopt({ ...found, records: found.before });
  }

  /** Plans what is due by the clocks that this process has seen, for the replicas whose leases have not ended. */
  async function plan(records: readonly KeyRecord[], seen: Seen): Promise<Planned> {
    const { counted, over } = clocks.look(seen);
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

  /** Notes whether this process may sign. If that has changed, the next look reports it, so a fenced process names no kid in its lease. */
  function noteFence(): void {
    const before = fence;
    fence = replica.holds ? (signs ? clocks.fault : undefined) : leaseEnded(signal);
    if (fence?.message === before?.message || signal.aborted) return;
    mustLook = true;
    emit(fence === undefined ? { type: "unfenced" } : { type: "fenced", error: fence });
  }

  const isReady = (): boolean => replica.isReady && fence === undefined;

  async function onFailure(error: unknown, retryInMs: number): Promise<void> {
    mustLook = true;
    const { records } = inUse.state;
    // Before it has keys, the manager has not started, and `createKeyManager` throws.
    if (records.length === 0) return;
    schedule.noteTried(records);
    emit({ type: "failed", error: asJwksdError(error), retryInMs });
    noteFence();
    if (error instanceof StoreError && outages.has(error.code)) await inUse.shorten();
  }

  function checkMaySign(kid: string): void {
    noteFence();
    try {
      if (fence !== undefined) throw fence;
      replica.checkMaySign(kid);
    } catch (error) {
      // The cause may be gone by now. However many tokens are requested, `ask` looks at the store once a second at most.
      mustLook = true;
      void loop.ask().catch(() => {});
      throw error;
    }
  }

  const execute = (command: Command): Promise<Change> =>
    loop.run(async () => {
      const { records, events } = await keyring
        .change((stored, now, seen) => {
          clocks.look(seen);
          return applyCommand(schedule.withWaitsAsSeen(stored, now), command, policy, now);
        })
        .catch((error: unknown) => {
          throw error instanceof CannotSign ? error.cause : error;
        });
      // The command is committed, whatever becomes of this round.
      mustLook = true;
      await loop.ended(round()).catch(() => {});
      return { records, events };
    });

  const makeKey = (use: KeyUse, alg = nextAlg(inUse.state.records, use)): Promise<NewKey> => keyring.makeKey(use, alg);

  async function close(): Promise<void> {
    closing.abort(new StoreError("ERR_CLOSED", "the key manager was closed"));
    await loop.stop();
    await replica.leave();
    await keyring.close();
  }

  // Watching begins before the first read, so that no commit between both is missed.
  const noteChange = (): void => {
    mustLook = true;
    loop.wake();
  };
  custody.store.watch(noteChange, { signal });
  await loop.round().catch(async (error: unknown) => {
    if (inUse.state.records.length > 0) return;
    await close();
    throw error;
  });
  if (!custody.isVerified) emit({ type: "unsealed" });

  return {
    policy,
    get records() {
      return inUse.state.records;
    },
    get isReady() {
      return isReady();
    },
    get isAcknowledged() {
      return replica.lastReported.publishes === inUse.state.revision && !subscribers.isBehind;
    },
    issuer: custody.owner.issuer,
    maxTokenLifetimeSeconds: policy.maxTokenLifetimeSeconds,
    get keysets() {
      return keysetsOf(inUse.state.records, inUse.state.keys);
    },
    get isRotating() {
      return inUse.isShort;
    },
    checkMaySign,
    endOf: (kid) => endOf(inUse.state.records, kid),
    async subscribe(subscriber) {
      if (typeof subscriber?.update !== "function")
        throw new ConfigError("ERR_OPTION_INVALID", "a subscriber needs the method update");
      return loop.run(() => subscribers.give(subscriber, inUse.state));
    },
    get lease() {
      return { id: replica.id, name: leaseName, ...replica.lastReported };
    },
    async look() {
      mustLook = true;
      await loop.round();
    },
    async observe() {
      const { store } = custody;
      await look(store, { clock, signal, onCall });
      const read = (signal: AbortSignal) => store.events({ limit: maxObserved, signal });
      return ofStore("events", read, { clock, signal, onCall });
    },
    ...createCommands({ execute, makeKey, records: () => inUse.state.records }),
    execute,
    makeKey,
    async decryptionKey({ kid = "" }) {
      signal.throwIfAborted();
      if (!inUse.state.keys.decryptionKeys.has(kid)) {
        mustLook = true;
        await loop.ask();
      }
      const key = inUse.state.keys.decryptionKeys.get(kid);
      if (key !== undefined) return key;
      throw new SignerError("ERR_SIGNER_KEY_STATE", `no encryption key with the kid ${JSON.stringify(kid)} is kept`);
    },
    get health() {
      return health.health;
    },
    metrics: () =>
      managerMetrics({
        records: inUse.state.records,
        policy,
        published: replica.lastReported.publishes,
        isReady: isReady(),
        health,
      }),
    close,
  };
}
