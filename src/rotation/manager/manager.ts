import type { CryptoKey } from "jose";
import { SignerError, StoreError, invalidOption } from "../../base/errors.ts";
import {
  type Given,
  type Rules,
  boolean,
  checkArgument,
  checkOptions,
  oneOf,
  nonEmptyString,
} from "../../base/options.ts";
import { type Custody, createCustody } from "../custody/custody.ts";
import type { StoreDocument } from "../custody/document.ts";
import { ownedBy } from "../custody/issuer-check.ts";
import { type WrappingKeys, readWrappingKeys } from "../custody/key-wrapping.ts";
import type { Processes } from "../custody/presence-records.ts";
import { rewrap } from "../custody/rewrap.ts";
import { privateJwkOf } from "../custody/unwrap-key.ts";
import { checkAllHave } from "../explain/replicas.ts";
import type { KeyChange } from "../rules/advance.ts";
import { type Command, type NewKey, applyCommand } from "../rules/commands.ts";
import { type KeyUse, announcedKey, endOf, isLive, nextAlg, recordOf } from "../rules/key-records.ts";
import { type RotationPolicy, type RotationPolicyOptions, policyNames } from "../rules/policy.ts";
import type { Register } from "../store/register.ts";
import { createCheckIn, stale } from "./check-in.ts";
import { type ContextOptions, type ProcessName, createContext } from "./context.ts";
import { createCurrentKeys } from "./current-keys.ts";
import { CannotSign, type KeyringOptions, createKeyring } from "./key-changes.ts";
import { type DemandOptions, createDemand, createLoop } from "./loop.ts";
import { checkManagerOptions } from "./options.ts";
import { keysetsOf } from "./private-keys.ts";
import { createRounds } from "./rounds.ts";
import type { Decide } from "./store-access.ts";
import { clockAheadMs } from "./store-clock.ts";
import type {
  DecommissionOptions,
  ForceOptions,
  KeyManager,
  KeyManagerOptions,
  RollBackOptions,
  RotateOptions,
} from "./types.ts";

/**
 * Manages one issuer's keys in a store: generates the first key if the store is empty and takes every planned step when
 * it is due. Several managers, in any processes, can share a store; they use compare-and-set to agree on its content.
 *
 * Between steps, a manager only checks in with the store and reads it. While the store is unavailable, the manager
 * takes no steps, but still serves and signs with the keys that it has.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_POLICY_INVALID`,
 * `ERR_WRAPPING_KEY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_EMPTY`, `ERR_STORE_NOT_AUTHENTIC`, `ERR_STORE_ISSUER`,
 * `ERR_RECORDS_INVALID`, `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
 * @throws KeyMaterialError `ERR_KEY_MISMATCH`
 * @throws SignerError if the active key is external and cannot be opened; `ERR_SIGNER_STALE` if the store is empty and
 * its clock and this machine's clock differ
 */
export async function createKeyManager(options: KeyManagerOptions): Promise<KeyManager> {
  const given = checkManagerOptions(options);
  return managerWith(await readWrappingKeys(given.wrappingKeys, (index) => `wrappingKeys[${index}]`), given);
}

/**
 * Creates a manager from checked options and parsed wrapping keys.
 *
 * @throws the same errors as {@link createKeyManager}
 */
export async function managerWith(
  keys: WrappingKeys,
  { issuer, store, ...given }: Omit<Given<KeyManagerOptions>, "wrappingKeys">,
): Promise<KeyManager> {
  const { onDemand = false, requireStore = onDemand, refreshSeconds = 30, waitUntil } = given;
  const custody = createCustody({
    register: onDemand ? withoutProcess(store) : store,
    keys,
    issuerCheck: ownedBy(issuer),
  });
  const demand = onDemand ? { refreshMs: refreshSeconds * 1000, waitUntil } : undefined;
  return manageKeys(custody, { ...given, requireStore, demand });
}

/**
 * Returns the register without presence records or callbacks. With `onDemand`, there is no long-lived process to list
 * or to call back.
 */
const withoutProcess = (store: Register): Register => ({
  name: store.name,
  maxBytes: store.maxBytes,
  read: (known, options) => store.read(known, options),
  write: (text, ifVersion, options) => store.write(text, ifVersion, options),
});

/** Options for a manager. They do not include the issuer, because that is part of the `Custody` object. */
export interface ManageOptions extends ContextOptions, KeyringOptions {
  /** If set, rounds run only when keys are needed. */
  readonly demand?: DemandOptions | undefined;
}

/** A manager with additional members that the service needs. */
export interface ServiceManager extends KeyManager {
  /**
   * Carries out a command.
   *
   * @param newKey generated key for the command
   * @throws RotationError, StoreError, for the same reasons as `applyCommand` and `StoreAccess.change`
   */
  execute(command: Command, newKey?: NewKey): Promise<KeyChange>;
  /** Generates a key for `execute`, in the same place as this manager's own keys. The key is not in the store yet. */
  makeKey(use: KeyUse, alg?: string): Promise<NewKey>;
  /** Identity of this process, as given in its presence record. */
  readonly process: ProcessName;
  /** The document in use. */
  readonly document: StoreDocument;
  /**
   * Whether all subscribers have accepted the latest keys that this process knows about and, for a target, whether the
   * store has also recorded that the target has received them.
   */
  readonly isPublished: boolean;
  /** How far the store's clock is ahead of this machine's, in milliseconds. */
  readonly clockAheadMs: number;
  /** Lists the processes that may currently serve or sign, according to their presence records. @throws StoreError */
  processes(): Promise<Processes>;
  /** If no issuer was chosen for the keys, records the URL at which they are served. @throws StoreError */
  recordIssuer(issuer: string): Promise<void>;
}

const rotateRules: Rules<RotateOptions> = { use: oneOf("sig", "enc"), alg: nonEmptyString, now: boolean };
const rollBackRules: Rules<RollBackOptions> = { kid: nonEmptyString, withdraw: boolean, now: boolean };
const decommissionRules: Rules<DecommissionOptions> = { now: boolean };
const forceRules: Rules<ForceOptions> = { force: boolean };

/**
 * Manages the keys in a `Custody` object.
 *
 * @throws the same errors as {@link createKeyManager}
 */
export async function manageKeys(custody: Custody, options: ManageOptions): Promise<ServiceManager> {
  const closing = new AbortController();
  const context = createContext(custody, options, closing.signal);
  const { access, clock, signal, health, report, process } = context;
  const keyring = createKeyring(context, options);
  const inUse = createCurrentKeys(context, keyring);
  const checkIn = createCheckIn(context, inUse);
  const { demand } = options;
  const rounds = createRounds(context, keyring, inUse, checkIn);
  const loop = demand === undefined ? createLoop(context, rounds) : createDemand(context, rounds, checkIn, demand);
  const { fresh, ask, round: runDueSteps } = loop;

  function documentInUse(): StoreDocument {
    if (inUse.document === undefined) throw stale("it has not read its store yet; await runDueSteps()");
    return inUse.document;
  }

  const change = (decide: Decide, newKey?: NewKey): Promise<KeyChange> =>
    loop.run(async () => {
      const { records, events } = await keyring.change(decide, newKey).catch((error: unknown) => {
        throw error instanceof CannotSign ? error.cause : error;
      });
      // The change is committed, even if this round fails.
      await loop.now().catch(() => {});
      return { records, events };
    });

  const execute = (command: Command, newKey?: NewKey): Promise<KeyChange> =>
    change((seen) => applyCommand(seen.document.records, command, rounds.at(seen)), newKey);

  const makeKey = (use: KeyUse, alg = nextAlg(inUse.records, use)): Promise<NewKey> => keyring.makeKey(use, alg);

  const earlyStep =
    (type: "activate" | "retire" | "remove") =>
    async (kid: string, options: ForceOptions = {}): Promise<KeyChange> => {
      const { force = false } = checkOptions(options, forceRules);
      checkArgument("the kid", kid, nonEmptyString);
      return execute({ type, kid, force });
    };

  async function decryptionKey({ kid = "" }: { readonly kid?: string | undefined }): Promise<CryptoKey> {
    signal.throwIfAborted();
    await fresh?.();
    const keyOf = (): CryptoKey | undefined => inUse.keys.decryptionKeys.get(kid);
    const known = keyOf();
    if (known !== undefined) return known;
    // The read is in use even if the rest of the round has failed.
    await ask().catch((error: unknown) => {
      if (keyOf() === undefined) throw error;
    });
    const key = keyOf();
    if (key !== undefined) return key;
    throw new SignerError("ERR_SIGNER_KEY_STATE", `there is no encryption key with the kid ${JSON.stringify(kid)}`);
  }

  async function close(): Promise<void> {
    closing.abort(new StoreError("ERR_CLOSED", "the key manager was closed"));
    await loop.stop();
    await access.forget([process.id]).catch(() => {});
    await keyring.close();
  }

  // Watches before the first read, so that no commit after that read is missed.
  custody.register.watch?.(loop.wake, { signal });
  if (demand === undefined) {
    await runDueSteps().catch(async (error: unknown) => {
      if (inUse.document !== undefined && inUse.unavailable === undefined) return;
      await close();
      throw error;
    });
    const stored = documentInUse().policy;
    const given = options.initialPolicy ?? {};
    if (differs(given, stored)) report({ type: "policy-differs", given, stored });
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
      return checkIn.error === undefined;
    },
    get isPublished() {
      return inUse.isPublished;
    },
    issuer: custody.owner.issuer,
    get maxTokenLifetimeSeconds() {
      return documentInUse().policy.maxTokenLifetimeSeconds;
    },
    get keysets() {
      return keysetsOf(inUse.records, inUse.keys);
    },
    get isRotating() {
      // If the process was paused, it has not switched to the short Cache-Control yet.
      return inUse.isShort || checkIn.error !== undefined;
    },
    permit(kid) {
      const check = checkIn.permit(kid);
      return () => {
        try {
          check();
        } catch (error) {
          checkIn.reportChange();
          // The cause may have been fixed in the meantime. However many tokens are requested, the store is read at most
          // once a second.
          ask().catch(() => {});
          throw error;
        }
      };
    },
    endOf: (kid) => endOf(inUse.records, kid),
    onDemand: fresh && { fresh, ask },
    async subscribe(subscriber) {
      if (typeof subscriber?.update !== "function") throw invalidOption("a subscriber must have an update method");
      return loop.run(() => inUse.subscribe(subscriber));
    },
    get clockAheadMs() {
      return access.last === undefined ? 0 : clockAheadMs(access.last, clock);
    },
    runDueSteps,
    processes: checkIn.processes,
    async recordIssuer(issuer) {
      await access.change(({ document }) => {
        const { owner } = custody;
        const isRecorded = owner.isChosen || owner.issuer === issuer || document.records.length === 0;
        return isRecorded ? {} : { owner: { issuer, isChosen: false } };
      });
    },
    async rotate(options = {}) {
      const { use = "sig", alg, now = false } = checkOptions(options, rotateRules);
      await runDueSteps().catch(() => {});
      // With `now`, an announced key is used as the next key.
      const isAnnounced = now && announcedKey(inUse.records, use) !== undefined;
      const key = isAnnounced ? undefined : await makeKey(use, alg);
      return execute({ type: "rotate", use, now, key }, key);
    },
    rollBack: async (options = {}) => execute({ type: "rollBack", ...checkOptions(options, rollBackRules) }),
    activate: earlyStep("activate"),
    retire: earlyStep("retire"),
    remove: earlyStep("remove"),
    async revoke(kid) {
      checkArgument("the kid", kid, nonEmptyString);
      await runDueSteps().catch(() => {});
      const active = inUse.records.find((record) => record.kid === kid && record.state === "active");
      const isAlone = active !== undefined && announcedKey(inUse.records, active.use) === undefined;
      const replacement = isAlone ? await makeKey(active.use) : undefined;
      return execute({ type: "revoke", kid, replacement }, replacement);
    },
    async rewrap() {
      const { document, now } = await access.read();
      checkAllHave(custody.wrappingKeys[0], { document, now, ...(await checkIn.processes()) });
      return custody.movingToFirst(() => change(async (seen) => rewrap(seen.document.records, custody, seen.now)));
    },
    decommission: async (options = {}) =>
      execute({ type: "decommission", now: checkOptions(options, decommissionRules).now }),
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
      return health.current;
    },
    metrics() {
      const { document } = inUse;
      if (document === undefined) return [];
      return health.metrics({ document, isReady: checkIn.error === undefined, staleInMs: checkIn.leftMs });
    },
    close,
  };
}

/** Reports whether the policy in the options contradicts the store's policy. */
function differs(given: RotationPolicyOptions, stored: RotationPolicy): boolean {
  return policyNames.some((name) => (given[name] ?? stored[name]) !== stored[name]);
}
