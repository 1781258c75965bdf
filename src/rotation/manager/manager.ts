import { notify } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, SignerError, StoreError, asJwksdError } from "../../base/errors.ts";
import type { Given } from "../../base/options.ts";
import type { Change } from "../rules/advance.ts";
import { type Command, type NewKey, applyCommand } from "../rules/commands.ts";
import { rotationPolicy } from "../rules/policy.ts";
import { endOf, nextAlg, recordOf } from "../rules/records.ts";
import { createClocks } from "./clocks.ts";
import { createCopyLease } from "./copy-lease.ts";
import { createCommands } from "./commands.ts";
import { CannotSign, createKeyring } from "./keyring.ts";
import { createKeysInUse } from "./keys-in-use.ts";
import { createHealth } from "./health.ts";
import { managerMetrics } from "./metrics.ts";
import { checkManagerOptions } from "./options.ts";
import { servedBy } from "../custody/issuer-check.ts";
import { keysetsOf } from "./private-keys.ts";
import { look, ofStore } from "./compare-and-set.ts";
import { type LeaseContent, createFence, createReplica } from "./replica.ts";
import { createRounds } from "./rounds.ts";
import { createSchedule } from "./schedule.ts";
import { createSubscribers } from "./subscribers.ts";
import type { KeyManager, KeyManagerOptions, ManagerEvent } from "./types.ts";
import type { KeySubscriber } from "../../library/provider/managed-keys.ts";
import type { KeyUse, StoredEvent } from "../store/store.ts";
import { type Custody, createCustody } from "../custody/custody.ts";
import { privateJwkOf } from "../custody/private-half.ts";
import { readWrappingKeys } from "../custody/wrapping.ts";

/**
 * Starts to manage the keys of one issuer in a store: makes the first key where there is none, and takes every planned step when it is
 * due. Several managers with one store, in any processes, agree by compare-and-set.
 *
 * Between two steps it does nothing. While the store is gone it serves and signs with the keys that it has, and takes no step.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_POLICY_INVALID`,
 * `ERR_WRAPPING_KEY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_EMPTY`, `ERR_STORE_NOT_AUTHENTIC`, `ERR_STORE_ISSUER`, `ERR_RECORDS_INVALID`,
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
  const health = createHealth(clock, () => custody.answer);
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
  const settings = { wrappingKeys: custody.wrappingKeys, policy, signs };
  const lease = { name: leaseName, settings, leaseMs, clock, signal, onCall };
  const replica = copy === undefined ? createReplica(custody.store, lease) : createCopyLease(custody.store, lease);
  const clocks = createClocks(clock, policy.clockSkewSeconds * 1000);
  const schedule = createSchedule(policy, clocks, clock);
  const fence = createFence({ replica, clocks, signs, signal, emit });
  const maySign = (): boolean => signs && fence.error === undefined;
  const inUse = createKeysInUse({ policy, keyring, replica, subscribers, maySign, emit, clock });
  const rounds = createRounds({
    custody,
    policy,
    clock,
    signal,
    emit,
    keyring,
    subscribers,
    replica,
    clocks,
    schedule,
    fence,
    inUse,
  });

  const execute = (command: Command): Promise<Change> =>
    rounds.run(async () => {
      const { records, events } = await keyring
        .change((stored, now, seen) => {
          clocks.look(seen);
          return applyCommand(schedule.withWaitsAsSeen(stored, now), command, policy, now);
        })
        .catch((error: unknown) => {
          throw error instanceof CannotSign ? error.cause : error;
        });
      // The command is committed, whatever becomes of this round.
      await rounds.now().catch(() => {});
      return { records, events };
    });

  const decryptionKey: KeyManager["decryptionKey"] = async ({ kid = "" }) => {
    signal.throwIfAborted();
    if (!inUse.state.keys.decryptionKeys.has(kid)) {
      await rounds.ask();
    }
    const key = inUse.state.keys.decryptionKeys.get(kid);
    if (key !== undefined) return key;
    throw new SignerError("ERR_SIGNER_KEY_STATE", `no encryption key with the kid ${JSON.stringify(kid)} is kept`);
  };

  const makeKey = (use: KeyUse, alg = nextAlg(inUse.state.records, use)): Promise<NewKey> => keyring.makeKey(use, alg);

  async function discard(uri: string, isCertain: boolean): Promise<void> {
    emit({ type: "orphaned", uri, isDestroyed: isCertain && (await keyring.destroyUnrecorded(uri)) });
  }

  async function close(): Promise<void> {
    closing.abort(new StoreError("ERR_CLOSED", "the key manager was closed"));
    await rounds.stop();
    await replica.leave((error, until) => emit({ type: "lease-left", until, error: asJwksdError(error) }));
    await keyring.close();
  }

  // Watching begins before the first read, so that no commit between both is missed.
  custody.store.watch(rounds.wake, { signal });
  await rounds.look().catch(async (error: unknown) => {
    if (inUse.state.records.length > 0) return;
    await close();
    throw error;
  });

  return {
    policy,
    get records() {
      return inUse.state.records;
    },
    get isReady() {
      return rounds.isReady;
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
    checkMaySign: rounds.checkMaySign,
    endOf: (kid) => endOf(inUse.state.records, kid),
    async subscribe(subscriber) {
      if (typeof subscriber?.update !== "function")
        throw new ConfigError("ERR_OPTION_INVALID", "a subscriber needs the method update");
      return rounds.run(() => subscribers.give(subscriber, inUse.state));
    },
    get lease() {
      return { id: replica.id, name: leaseName, ...replica.lastReported };
    },
    look: rounds.look,
    async observe() {
      const { store } = custody;
      await look(store, { clock, signal, onCall });
      const read = (signal: AbortSignal) => store.events({ limit: maxObserved, signal });
      return ofStore("events", read, { clock, signal, onCall });
    },
    ...createCommands({ look: rounds.look, execute, makeKey, records: () => inUse.state.records, discard }),
    execute,
    makeKey,
    decryptionKey,
    async exportDecryptionKey(kid) {
      await decryptionKey({ kid });
      return privateJwkOf(recordOf(inUse.state.records, kid), custody);
    },
    get health() {
      return health.health;
    },
    metrics: () =>
      managerMetrics({
        records: inUse.state.records,
        policy,
        published: replica.lastReported.publishes,
        isReady: rounds.isReady,
        health,
      }),
    close,
  };
}
