import { notify } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, type ErrorCode, SignerError, StoreError, asJwksdError } from "../../base/errors.ts";
import { applyCommand } from "../rules/commands.ts";
import { rotationPolicy } from "../rules/policy.ts";
import { nextAlg } from "../rules/records.ts";
import { isWaitingForReplicas } from "../rules/waits.ts";
import { createClocks } from "./clocks.ts";
import { createCopyLease } from "./copy-lease.ts";
import { CannotSign, createKeyring } from "./keyring.ts";
import { createKeysInUse } from "./keys-in-use.ts";
import { type Turned, createLoop } from "./loop.ts";
import { createManagerMetrics } from "./metrics.ts";
import { checkManagerOptions } from "./options.ts";
import { servedBy } from "../custody/owner.ts";
import { keysetsOf } from "./private-keys.ts";
import { createReplica } from "./replica.ts";
import { createSchedule } from "./schedule.ts";
import { createSinks } from "./sinks.ts";
import { createSteps } from "./steps.ts";
import type { KeyManager, KeyManagerOptions, KeySink, ManagerEvent } from "./types.ts";
import { type Vault, createVault } from "../custody/vault.ts";
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
  checkManagerOptions(options);
  const { issuer, store } = options;
  const keys = await readWrappingKeys(options.wrappingKeys, (index) => `wrappingKeys[${index}]`);
  return manageKeys(createVault({ store, keys, ownerRule: servedBy({ issuer, isChosen: true }) }), options);
}

/** Errors of a store that cannot be reached. */
const outages: ReadonlySet<string> = new Set<ErrorCode>([
  "ERR_STORE_UNAVAILABLE",
  "ERR_COMMIT_UNKNOWN",
  "ERR_LEASE_ENDED",
]);

/** A copy of the documents that is served without the process that writes it. */
export interface Copy extends KeySink {
  /** The same for every process that writes this copy. */
  readonly name: string;
}

/** The issuer is the owner of the vault. */
export interface ManageOptions extends Omit<KeyManagerOptions, "issuer" | "store" | "wrappingKeys"> {
  /** What this manager publishes, in the place of a service. Its lease stands when the process has ended. It must not sign. */
  readonly copy?: Copy | undefined;
}

/** A manager as whoever publishes a copy needs it. */
export interface CopyManager extends KeyManager {
  /** Whether the others know that it publishes the newest keys that it knows. */
  readonly isAcknowledged: boolean;
  /** Looks at the store. @throws as a turn does */
  look(): Promise<void>;
}

/** Manages the keys of a vault. @throws see {@link createKeyManager} */
export async function manageKeys(vault: Vault, options: ManageOptions): Promise<CopyManager> {
  const { onEvent, copy, signs = copy === undefined } = options;
  const clock = options.clock ?? systemClock;
  const policy = rotationPolicy(options.policy ?? undefined);
  const leaseMs = policy.leaseSeconds * 1000;
  const closing = new AbortController();
  const { signal } = closing;
  const measured = createManagerMetrics(clock);
  const { onCall } = measured;
  const emit = (event: ManagerEvent): void => {
    // One that did not open because the manager is closed is none.
    if (event.type === "held-back" && signal.aborted) return;
    measured.note(event);
    notify(onEvent, event);
  };
  const keyring = createKeyring(vault, { ...options, policy, clock, signal, onCall });
  const sinks = createSinks(clock, signal, copy);
  const lease = { leaseMs, clock, signal, onCall };
  const replica =
    copy === undefined
      ? createReplica(vault.store, { ...lease, name: options.replicaName ?? "jwksd" })
      : createCopyLease(vault.store, { ...lease, name: copy.name });
  const clocks = createClocks(clock, policy.clockSkewSeconds * 1000);
  const schedule = createSchedule(policy, clocks);
  const inUse = createKeysInUse({ policy, keyring, replica, sinks, signs, emit });
  const steps = createSteps({ policy, vault, keyring, replica, clocks, schedule, inUse, emit });
  const loop = createLoop(turn, { clock, signal, onFailure, onRecovery: () => emit({ type: "recovered" }) });
  /** Whether the store has to be looked at, and the time by which it has to be in any case. */
  let mustLook = true;
  let lookAt = -Infinity;
  let isFenced = false;

  /** A turn. Where others have ended the lease, it joins anew at once; where that is in vain, it waits as after any failure. */
  async function turn(): Promise<Turned> {
    try {
      return await takeTurn();
    } catch (error) {
      if (error instanceof StoreError && error.code === "ERR_LEASE_ENDED") return takeTurn();
      throw error;
    }
  }

  /** Takes what is due, takes over what others did, and tells them. */
  async function takeTurn(): Promise<Turned> {
    await replica.join();
    const { revision } = inUse.state;
    const isRenewal = !mustLook && clock.now() < lookAt && replica.told.publishes === revision;
    if (isRenewal && (await replica.tell(replica.told)) === revision) return turned();
    mustLook = true;
    do {
      await inUse.adopt(await steps.take());
      if (keyring.createSigner !== undefined && !signal.aborted) await steps.makeExternalKey();
      // What was just told may be what a step waited for.
    } while (await inUse.acknowledge());
    [mustLook, isFenced] = [false, false];
    return turned();
  }

  /** When the next turn is due. @throws what a sink threw: it is tried again */
  function turned(): Turned {
    const { records } = inUse.state;
    sinks.check();
    const now = clocks.now();
    const { wakeAt } = schedule.plan(records, now);
    const looks = isWaitingForReplicas(records, policy) ? [Math.min(Math.max(leaseMs / 60, 250), 60_000)] : [];
    const lookInMs = Math.max(Math.min(wakeAt - now, ...schedule.triesInMs(now), ...looks), 0);
    lookAt = clock.now() + lookInMs;
    // After a failure to make the next key, the next attempt tells whether it is mended.
    return { wakeInMs: Math.min(lookInMs, replica.renewInMs), isPending: steps.isMaking };
  }

  async function onFailure(error: unknown, retryInMs: number): Promise<void> {
    mustLook = true;
    const { records } = inUse.state;
    // Before there are keys it has not started.
    if (records.length === 0) return;
    schedule.noteTried(records);
    emit({ type: "failed", error: asJwksdError(error), retryInMs });
    if (!replica.holds && !isFenced) {
      isFenced = true;
      emit({ type: "fenced" });
    }
    if (error instanceof StoreError && outages.has(error.code)) await inUse.shorten();
  }

  function checkMaySign(kid: string): void {
    try {
      replica.checkMaySign(kid);
      clocks.check();
    } catch (error) {
      // It may be mended by now. However many tokens are asked for, the store is asked once a second.
      mustLook = true;
      void loop.ask().catch(() => {});
      throw error;
    }
  }

  async function close(): Promise<void> {
    closing.abort(new StoreError("ERR_CLOSED", "the key manager was closed"));
    await loop.stop();
    await replica.leave();
    await keyring.close();
  }

  // Before anything is read, so that no commit between the two is missed.
  const noteChange = (): void => {
    mustLook = true;
    loop.wake();
  };
  vault.store.watch(noteChange, { signal });
  await loop.turn().catch(async (error: unknown) => {
    if (inUse.state.records.length > 0) return;
    await close();
    throw error;
  });
  if (!vault.isVerified) emit({ type: "unsealed" });

  return {
    policy,
    get records() {
      return inUse.state.records;
    },
    get isReady() {
      return replica.isReady;
    },
    get isAcknowledged() {
      return replica.told.publishes === inUse.state.revision && !sinks.isBehind;
    },
    get options() {
      return {
        issuer: vault.owner.issuer,
        ...keysetsOf(inUse.state.records, inUse.state.keys),
        jwksRotationActive: () => inUse.isShort,
        maxTokenLifetimeSeconds: policy.maxTokenLifetimeSeconds,
        checkMaySign,
      };
    },
    async look() {
      mustLook = true;
      await loop.turn();
    },
    async attach(sink) {
      if (typeof sink?.update !== "function") throw new ConfigError("ERR_OPTION_INVALID", "a sink has no update()");
      return loop.run(() => sinks.give(sink, inUse.state));
    },
    execute: (command) =>
      loop.run(async () => {
        const { records, events } = await keyring
          .change((stored, now, snapshot) => {
            clocks.look(snapshot);
            return applyCommand(schedule.withWaitsAsSeen(stored, now), command, policy, now);
          })
          .catch((error: unknown) => {
            throw error instanceof CannotSign ? error.cause : error;
          });
        // It is done, whatever becomes of the rest.
        mustLook = true;
        await loop.ended(turn()).catch(() => {});
        return { records, events };
      }),
    makeKey: (use, alg = nextAlg(inUse.state.records, use)) => keyring.makeKey(use, alg),
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
    metrics: () =>
      measured.metrics({
        records: inUse.state.records,
        policy,
        published: replica.told.publishes,
        stored: inUse.state.revision,
        isReady: replica.isReady,
      }),
    close,
  };
}
