import type { CryptoKey } from "jose";
import { notify } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { ConfigError, SignerError, StoreError } from "../../base/errors.ts";
import type { Given } from "../../base/options.ts";
import { type Custody, createCustody } from "../custody/custody.ts";
import { servedBy } from "../custody/issuer-check.ts";
import { privateJwkOf } from "../custody/private-half.ts";
import { type WrappingKeys, readWrappingKeys } from "../custody/wrapping.ts";
import type { Change } from "../rules/advance.ts";
import { type Command, type NewKey, applyCommand } from "../rules/commands.ts";
import { type RotationPolicy, type RotationPolicyOptions, policyNames, rotationPolicy } from "../rules/policy.ts";
import { type KeyUse, endOf, isLive, nextAlg, recordOf } from "../rules/records.ts";
import { createCommands } from "./commands.ts";
import { type Target, isTargetBehind } from "./targets.ts";
import { stale } from "./freshness.ts";
import { createHealth } from "./health.ts";
import { CannotSign, createKeyring } from "./keyring.ts";
import { createKeysInUse } from "./keys-in-use.ts";
import { managerMetrics } from "./metrics.ts";
import { checkManagerOptions } from "./options.ts";
import { type Processes, livePresence } from "../custody/presence.ts";
import { keysetsOf } from "./private-keys.ts";
import { type RoundsOptions, createRounds } from "./rounds.ts";
import { clockAheadMs, createStoreAccess, storeNow } from "./store-access.ts";
import { createSubscribers } from "./subscribers.ts";
import type { Register } from "../store/register.ts";
import type { Filling, KeyManager, KeyManagerOptions, ManagerEvent } from "./types.ts";
import type { StoreDocument } from "../custody/document.ts";
import type { ProcessName } from "./word.ts";

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
  return managerWith(await readWrappingKeys(given.wrappingKeys, (index) => `wrappingKeys[${index}]`), given);
}

/** A manager whose options were checked, and whose wrapping keys were read. @throws see {@link createKeyManager} */
export async function managerWith(
  keys: WrappingKeys,
  { issuer, store, ...given }: Omit<Given<KeyManagerOptions>, "wrappingKeys">,
): Promise<KeyManager> {
  const { onDemand = false, requireStore = onDemand, refreshSeconds = 30, waitUntil } = given;
  const custody = createCustody({
    register: onDemand ? withoutProcess(store) : store,
    keys,
    issuerCheck: servedBy({ issuer, isChosen: true }),
  });
  return manageKeys(custody, {
    ...given,
    requireStore,
    demand: onDemand ? { refreshMs: refreshSeconds * 1000, waitUntil } : undefined,
  });
}

/** No process lives that could be listed, or called back. */
const withoutProcess = (store: Register): Register => ({
  name: store.name,
  maxBytes: store.maxBytes,
  read: (known, options) => store.read(known, options),
  write: (text, ifVersion, options) => store.write(text, ifVersion, options),
});

/** The issuer is that of the custody. */
export interface ManageOptions extends Omit<
  Given<KeyManagerOptions>,
  "issuer" | "store" | "wrappingKeys" | "onDemand" | "refreshSeconds" | "waitUntil"
> {
  /** Rounds only when somebody asks. */
  readonly demand?: RoundsOptions["demand"];
  /** A target to publish. Such a manager signs nothing. */
  readonly target?: Target | undefined;
  /** The version of jwksd, for people who look at the processes of a store. */
  readonly version?: string | undefined;
}

/** A manager as the service needs it. */
export interface ServiceManager extends KeyManager {
  /**
   * Does what a command asks for.
   *
   * @param made the key of the command that was made for it
   * @throws StateError, StoreError see `applyCommand` and `StoreAccess.change`
   */
  execute(command: Command, made?: NewKey): Promise<Change>;
  /** A new key for `execute`, which is in no store yet: made where this manager makes its keys, and wrapped as they are. */
  makeKey(use: KeyUse, alg?: string): Promise<NewKey>;
  /** This process, as its line in the store names it. */
  readonly process: ProcessName;
  /** The document in use. */
  readonly document: StoreDocument;
  /** Whether all subscribers have taken the newest keys that this process knows; of a target, whether the store knows that, too. */
  readonly isPublished: boolean;
  /** How far the clock of the store is ahead of that of this machine, in milliseconds. */
  readonly clockAheadMs: number;
  /** The processes that may serve or sign now, by their lines in the store. @throws StoreError */
  processes(): Promise<Processes>;
  /** Remembers in the store where keys are served for which no issuer was chosen. @throws StoreError */
  recordIssuer(issuer: string): Promise<void>;
}

/** Manages the keys in custody. @throws see {@link createKeyManager} */
export async function manageKeys(custody: Custody, options: ManageOptions): Promise<ServiceManager> {
  const { onEvent, target, signs = target === undefined } = options;
  const clock = options.clock ?? systemClock;
  const closing = new AbortController();
  const { signal } = closing;
  const health = createHealth(clock);
  const emit = (event: ManagerEvent): void => {
    // A key that did not open because the manager is closed is not held back.
    if (event.type === "activation-blocked" && signal.aborted) return;
    health.note(event);
    notify(onEvent, event);
  };
  const { onCall } = health;
  const onRevision = (revision: number): void => health.noteRevision(revision);
  const policy = rotationPolicy(options.policy);
  const onFilling = (filling: Filling): void => {
    if (health.health.store.filling === undefined) emit({ type: "store-nearly-full", ...filling });
  };
  const access = createStoreAccess(custody, { policy, clock, signal, onCall, onRevision, onFilling });
  const keyring = createKeyring(custody, access, {
    ...options,
    clock,
    signal,
    onOrphan: (uri, isDestroyed) => emit({ type: "orphaned", uri, isDestroyed }),
  });
  const subscribers = createSubscribers(clock, signal, target);
  const inUse = createKeysInUse({ keyring, subscribers, signs, clock, isOwn: access.isOwn, emit });
  const { version } = options;
  let id: string | undefined;
  const process: ProcessName = {
    // Workers have no random numbers before their first request.
    get id() {
      return (id ??= crypto.randomUUID());
    },
    name: target?.name ?? options.replicaName ?? "jwksd",
    version,
  };
  const common = { custody, access, keyring, inUse, subscribers, clock, signal, emit };
  const rounds = createRounds({ ...common, process, target, signs, demand: options.demand });
  const { freshness, fresh } = rounds;

  function documentInUse(): StoreDocument {
    const { document } = inUse.state;
    if (document === undefined) throw stale("it has not read its store yet; await runDueSteps()");
    return document;
  }

  const execute = (command: Command, made?: NewKey): Promise<Change> =>
    rounds.run(async () => {
      const { records, events } = await keyring
        .change((seen) => applyCommand(seen.document.records, command, rounds.at(seen)), made)
        .catch((error: unknown) => {
          throw error instanceof CannotSign ? error.cause : error;
        });
      // The command is committed, whatever becomes of this round.
      await rounds.now().catch(() => {});
      return { records, events };
    });

  const decryptionKey: KeyManager["decryptionKey"] = async ({ kid = "" }) => {
    signal.throwIfAborted();
    await fresh?.();
    const keyOf = (): CryptoKey | undefined => inUse.state.keys.decryptionKeys.get(kid);
    const known = keyOf();
    if (known !== undefined) return known;
    // What was read is in use, even if the rest of the round has failed.
    await rounds.ask().catch((error: unknown) => {
      if (keyOf() === undefined) throw error;
    });
    const key = keyOf();
    if (key !== undefined) return key;
    throw new SignerError("ERR_SIGNER_KEY_STATE", `no encryption key with the kid ${JSON.stringify(kid)} is kept`);
  };

  const makeKey = (use: KeyUse, alg = nextAlg(inUse.records, use)): Promise<NewKey> => keyring.makeKey(use, alg);

  async function close(): Promise<void> {
    closing.abort(new StoreError("ERR_CLOSED", "the key manager was closed"));
    await rounds.stop();
    await access.forget([process.id]).catch(() => {});
    await keyring.close();
  }

  // Watching begins before the first read, so that no commit between both is missed.
  custody.register.watch?.(rounds.wake, { signal });
  if (fresh === undefined) {
    await rounds.runDueSteps().catch(async (error: unknown) => {
      if (inUse.state.document !== undefined && inUse.unavailable === undefined) return;
      await close();
      throw error;
    });
    const stored = documentInUse().policy;
    const given = options.policy ?? {};
    if (differs(given, stored)) emit({ type: "policy-differs", given, stored });
  }

  return {
    process,
    get document() {
      return documentInUse();
    },
    get policy() {
      return documentInUse().policy;
    },
    get records() {
      return inUse.records;
    },
    get isReady() {
      return freshness.error === undefined;
    },
    get isPublished() {
      return !subscribers.isBehind && (target === undefined || !isTargetBehind(documentInUse(), target.name));
    },
    issuer: custody.owner.issuer,
    get maxTokenLifetimeSeconds() {
      return documentInUse().policy.maxTokenLifetimeSeconds;
    },
    get keysets() {
      return keysetsOf(inUse.records, inUse.state.keys);
    },
    get isRotating() {
      // A process that was stopped has sent nobody the short Cache-Control yet.
      return inUse.isShort || freshness.error !== undefined;
    },
    permit(kid) {
      const check = freshness.permit(kid);
      return () => {
        try {
          check();
        } catch (error) {
          freshness.note();
          // The cause may be gone by now. However many tokens are requested, the store is read once a second at most.
          rounds.ask().catch(() => {});
          throw error;
        }
      };
    },
    endOf: (kid) => endOf(inUse.records, kid),
    onDemand: fresh && { fresh, ask: () => rounds.ask() },
    async subscribe(subscriber) {
      if (typeof subscriber?.update !== "function")
        throw new ConfigError("ERR_OPTION_INVALID", "a subscriber needs the method update");
      return rounds.run(() => inUse.subscribe(subscriber));
    },
    get clockAheadMs() {
      return access.last === undefined ? 0 : clockAheadMs(access.last, clock);
    },
    runDueSteps: () => rounds.runDueSteps(),
    async processes() {
      const list = await access.presence();
      const now = access.last === undefined ? clock.now() : storeNow(access.last, clock);
      return livePresence(list, now, documentInUse());
    },
    async recordIssuer(issuer) {
      await access.change(async ({ document }) => {
        const { owner } = custody;
        const isNoted = owner.isChosen || owner.issuer === issuer || document.records.length === 0;
        return isNoted ? {} : { owner: { issuer, isChosen: false } };
      });
    },
    ...createCommands({ runDueSteps: () => rounds.runDueSteps(), execute, makeKey, records: () => inUse.records }),
    execute,
    makeKey,
    decryptionKey,
    async exportDecryptionKey(kid) {
      await decryptionKey({ kid });
      const record = recordOf(inUse.records, kid);
      if (isLive(record)) return privateJwkOf(record, custody);
      throw new SignerError("ERR_SIGNER_KEY_STATE", `kid ${JSON.stringify(kid)} is ${record.state}`);
    },
    get health() {
      return health.health;
    },
    metrics() {
      const { document } = inUse.state;
      if (document === undefined) return [];
      const isReady = freshness.error === undefined;
      return managerMetrics({ document, isReady, staleInMs: freshness.leftMs, health });
    },
    close,
  };
}

/** Whether a policy of options says something else than that of the store. */
function differs(given: RotationPolicyOptions, stored: RotationPolicy): boolean {
  return policyNames.some((name) => (given[name] ?? stored[name]) !== stored[name]);
}
