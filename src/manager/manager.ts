import { systemClock } from "../clock.ts";
import { ConfigError, JwksdError, SignerError, StoreError } from "../errors.ts";
import { checkEncryption, checkSigning } from "../keyset/keyset.ts";
import type { KeyEvent, KeyRecord } from "../store/store.ts";
import { type Advance, type Change, advance, endOfWait, noteTokenLifetimes } from "../rotation/advance.ts";
import { type Command, announce, applyCommand } from "../rotation/commands.ts";
import { externalKey, makeLocalKey } from "./make-key.ts";
import type { KeyManager, KeyManagerOptions, ManagerEvent } from "./types.ts";
import { checkManagerOptions } from "./options.ts";
import { checkNotRolledBack } from "../rotation/rollback.ts";
import { type OpenKeys, createKeyOpener, destroyExternal, keysetsOf } from "./private-keys.ts";
import { servedBy } from "./owner.ts";
import { rotationPolicy } from "../rotation/policy.ts";
import {
  activeKey,
  addedRecords,
  announcedKey,
  announcedUntil,
  checkFence,
  endedExternalKeys,
  isRotating,
  newlyActive,
  nextAlg,
  uriOf,
} from "../rotation/records.ts";
import { rewrap } from "./rewrap.ts";
import { announceNext, announcedLate, claimNext, reasonForNext } from "../rotation/successor.ts";
import { createSinks } from "./sinks.ts";
import { compareAndSet } from "./compare-and-set.ts";
import { type Vault, createVault } from "./vault.ts";
import { readWrappingKeys } from "./wrapping.ts";

const retryMs = { first: 1_000, last: 30_000 } as const;
/** How soon a key that cannot sign is tried again. */
const heldBackMs = 60_000;
/** Replicas whose clocks are years apart start each other's waits again. Who does so once in this time leaves the other one its way. */
const restartMs = 60_000;

/**
 * Starts to manage the keys of one issuer in a store: makes the first key where there is none, and takes every planned step when it
 * is due. Several managers with one store, in any processes, agree by compare-and-set.
 *
 * Between two steps it does nothing. While the store is gone it serves and signs with the keys that it has, and follows the plan that
 * they had: other replicas do the same.
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

/** Manages the keys of a vault. @throws see {@link createKeyManager} */
export async function manageKeys(
  vault: Vault,
  options: Omit<KeyManagerOptions, "store" | "wrappingKeys">,
): Promise<KeyManager> {
  const { store } = vault;
  const { issuer, createSigner, openSigner, destroySigner, onEvent } = options;
  const clock = options.clock ?? systemClock;
  const policy = rotationPolicy(options.policy ?? undefined);
  const closing = new AbortController();
  const { signal } = closing;
  const opener = createKeyOpener(vault, openSigner, signal, options);
  const sinks = createSinks(clock, signal);
  const me = crypto.randomUUID();
  /** Announced keys that could not sign when their wait was over, and until when they are not asked again. */
  const notReady = new Map<string, number>();
  let records: readonly KeyRecord[] = [];
  /** The records as they were last seen in the store, and the planned steps since then that could not be recorded. */
  let recorded: readonly KeyRecord[] = [];
  let unrecorded: readonly KeyEvent[] = [];
  let keys: OpenKeys = { signers: new Map(), decryptionKeys: new Map(), unopened: new Map() };
  let rotating = false;
  /** Why targets have not taken the present keys. */
  let behind: readonly unknown[] = [];
  let asked: { readonly at: number; readonly done: Promise<void> } | undefined;
  let failures = 0;
  let restartedAt = -Infinity;
  let cancelTimer: (() => void) | undefined;
  let turns: Promise<unknown> = Promise.resolve();

  // ---- one thing at a time

  function inTurn<T>(action: () => Promise<T>): Promise<T> {
    const done = turns.then(action);
    turns = done.catch(() => {});
    return done;
  }

  /** Takes what is due, takes over what others did, and sleeps until the next step. */
  async function turn(): Promise<void> {
    cancelTimer?.();
    if (signal.aborted) return;
    try {
      await adopt(await compareAndSet(store, step, { clock, signal }));
      await makeExternalKey();
      checkSinks();
      succeeded();
    } catch (error) {
      await failed(error);
      throw error;
    }
  }

  function succeeded(): void {
    const active = activeKey(records, "sig");
    // Where its own attempt to make the next key has failed, the next attempt tells.
    const isDue = active?.successorClaim?.by === me && announcedKey(records, "sig") === undefined;
    if (failures > 0 && !isDue) {
      failures = 0;
      emit({ type: "recovered" });
    }
    sleep(nextSteps(records, clock.now()).wakeAt);
  }

  async function failed(error: unknown): Promise<void> {
    // Without any keys it has not started.
    if (signal.aborted || records.length === 0) return;
    failures += 1;
    const retryInMs = Math.min(retryMs.first * 2 ** (failures - 1), retryMs.last);
    emit({ type: "failed", error: asJwksdError(error), retryInMs });
    await followPlan();
    const now = clock.now();
    // Planned steps are taken at their time, as by every other replica.
    const steps = records.map((record) => endOfWait(record, policy) ?? Infinity).filter((at) => at > now);
    sleep(Math.min(now + retryInMs, ...steps));
  }

  const turnLater = (): void => void inTurn(turn).catch(() => {});

  function sleep(nextStepAt: number): void {
    cancelTimer?.();
    const now = clock.now();
    // One that is over has just been asked.
    const tries = [...notReady.values()].map((until) => Math.max(until, now + retryMs.first));
    const wakeAt = Math.min(nextStepAt, ...tries);
    if (signal.aborted || wakeAt === Infinity) return;
    cancelTimer = clock.setTimer(turnLater, Math.max(wakeAt - now, 0));
  }

  /** Looks for what others did, once a second at most, for all who ask together. */
  function askStore(): Promise<void> {
    const now = clock.now();
    if (asked === undefined || Math.abs(now - asked.at) >= retryMs.first) asked = { at: now, done: inTurn(turn) };
    return asked.done;
  }

  // ---- deciding

  /** The records after all that is due now, with the next keys where they are made in memory. */
  async function step(stored: readonly KeyRecord[]): Promise<Change> {
    const now = clock.now();
    await checkUsable(stored);
    // A store for which no issuer was chosen yet takes the one that is.
    const owned = vault.isTaking
      ? await rewrap(stored, vault, now, `the issuer ${JSON.stringify(issuer)} was chosen`)
      : withUnrecorded(stored);
    const taken = announcedLate(owned, records, policy, now);
    const planned = await readyAdvance(taken.records, now);
    if (planned.due.length === 0 && isRestart(planned)) {
      if (Math.abs(now - restartedAt) < restartMs) return noteTokenLifetimes(taken, policy);
      restartedAt = now;
    }
    let change: Change = { records: planned.records, events: [...taken.events, ...planned.events] };
    for (const use of planned.due) {
      if (use === "sig" && createSigner !== undefined) continue;
      const alg = nextAlg(change.records, use);
      const key = await makeLocalKey(use, alg, vault);
      change = announce(change, key, now, reasonForNext(change.records.length === 0));
    }
    return noteTokenLifetimes(change, policy);
  }

  /** Who cannot use what is stored leaves it as it is. */
  async function checkUsable(stored: readonly KeyRecord[]): Promise<void> {
    checkNotRolledBack(stored, records, recorded);
    checkFence(stored, policy, clock.now());
    await opener.checkWrapped(stored);
  }

  /** What a command changes. No command makes a key active that cannot sign. */
  async function obey(stored: readonly KeyRecord[], command: Command): Promise<Change> {
    await checkUsable(stored);
    const taken = withUnrecorded(stored);
    const { records, events } = applyCommand(taken.records, command, policy, clock.now());
    await checkNewKeys(addedRecords(taken.records, records));
    const next = newlyActive(taken.records, records);
    if (next !== undefined) await opener.probe(next);
    return noteTokenLifetimes({ records, events: [...taken.events, ...events] }, policy);
  }

  /** A key that is recorded once stays for good, so one that cannot be opened or published is not. */
  async function checkNewKeys(added: readonly KeyRecord[]): Promise<void> {
    const trial = createKeyOpener(vault, openSigner, signal);
    try {
      const { keyset, encryptionKeyset } = keysetsOf(added, await trial.open(added));
      if (keyset.length > 0) await checkSigning(keyset);
      await checkEncryption(encryptionKeyset);
    } finally {
      await trial.close();
    }
  }

  /** Steps that were taken while the store was gone count from when they were taken, unless another replica recorded its own. */
  function withUnrecorded(stored: readonly KeyRecord[]): Change {
    if (unrecorded.length === 0 || JSON.stringify(stored) !== JSON.stringify(recorded))
      return { records: stored, events: [] };
    return { records, events: unrecorded };
  }

  /** A key becomes active only after it has signed here: one that cannot leaves the active key where it is. */
  async function readyAdvance(stored: readonly KeyRecord[], now: number): Promise<Advance> {
    for (const [kid, until] of notReady) {
      const record = stored.find((record) => record.kid === kid);
      const isOver = record?.state === "announced" && announcedUntil(record, policy) <= now;
      if (!isOver) notReady.delete(kid);
      // One from a clock that was wrong would last for years.
      else if (until > now + heldBackMs) notReady.set(kid, now);
    }
    const planned = nextSteps(stored, now);
    const next = newlyActive(stored, planned.records);
    if (next === undefined) return planned;
    try {
      await opener.probe(next);
      return planned;
    } catch (error) {
      notReady.set(next.kid, now + heldBackMs);
      heldBackBy(next.kid, error);
      return nextSteps(stored, now);
    }
  }

  /** A key that was asked has missed nothing, however often it could not sign or be recorded. */
  function nextSteps(stored: readonly KeyRecord[], now: number): Advance {
    const heldBack = [...notReady].flatMap(([kid, until]) => (until > now ? [kid] : []));
    return advance(stored, policy, now, new Set(heldBack), new Set(notReady.keys()));
  }

  /** One replica makes the next key, so that no others are left over in the HSM. */
  async function makeExternalKey(): Promise<void> {
    if (createSigner === undefined || signal.aborted) return;
    if (!advance(records, policy, clock.now()).due.includes("sig")) return;
    // There is no record yet that could bear a claim to the first key.
    if (records.length > 0 && !(await claimNextKey())) return;
    const signer = await createSigner({ issuer, signal });
    const isRecorded = (record: KeyRecord): boolean => uriOf(record) === signer.uri;
    let known = records;
    let isUncertain = false;
    try {
      const key = await externalKey(signer);
      const add = (stored: readonly KeyRecord[]): Change => announceNext((known = stored), key, policy, clock.now());
      // A store that fails may have taken it all the same.
      isUncertain = true;
      const change = await compareAndSet(store, add, { clock, signal });
      [known, isUncertain] = [change.records, false];
      await adopt(change);
    } finally {
      await signer.close();
      if (!known.some(isRecorded)) await takeBack(signer.uri, isUncertain);
    }
  }

  /** A key that this replica has made, and that nobody uses. */
  async function takeBack(uri: string, isUncertain: boolean): Promise<void> {
    let isDestroyed = false;
    if (destroySigner !== undefined && !isUncertain) {
      try {
        await destroySigner(uri, { signal });
        isDestroyed = true;
      } catch {
        // It is told of, as one that may not be destroyed.
      }
    }
    emit({ type: "orphaned", uri, isDestroyed });
  }

  /** Whether this replica is the one that makes the next key. */
  async function claimNextKey(): Promise<boolean> {
    let before: readonly KeyRecord[] = [];
    const claim = (stored: readonly KeyRecord[]): Change => claimNext((before = stored), me, policy, clock.now());
    const { records: after } = await compareAndSet(store, claim, { clock, signal });
    return after !== before;
  }

  // ---- taking over

  /** Opens what is new, and gives it to the targets; the old keys stay where that fails. */
  async function adopt({ records: next, events }: Change, isPlan = false): Promise<void> {
    checkFence(next, policy, clock.now());
    const isNew = JSON.stringify(next) !== JSON.stringify(records);
    if (isPlan && !isNew) return;
    // Keys that were there before it started are no change, and a note is none of keys.
    const isChange = keysText(next) !== keysText(records) && (records.length > 0 || events.length > 0);
    if (isNew) [keys, records] = [await opener.open(next), next];
    if (isPlan) unrecorded = [...unrecorded, ...events];
    else [recorded, unrecorded] = [next, []];
    await updateSinks();
    // Now nothing signs with them any more.
    if (behind.length === 0) await opener.closeUnused(records);
    const by = isPlan ? "plan" : events.length > 0 ? "this" : "another";
    if (isChange) emit({ type: "changed", by, records, events });
    // There is time to mend it before it is needed.
    if (isNew) for (const [kid, error] of keys.unopened) cannotSign(kid, error);
    if (!isPlan) void destroyEnded(events);
  }

  function cannotSign(kid: string, error: unknown): void {
    if (activeKey(records, "sig")?.kid !== kid) heldBackBy(kid, error);
    else emit({ type: "unopened", kid, error: asJwksdError(error) });
  }

  async function destroyEnded(events: readonly KeyEvent[]): Promise<void> {
    if (destroySigner === undefined || openSigner === undefined) return;
    for (const key of endedExternalKeys(records, events)) {
      const { kid, uri } = key;
      try {
        await destroyExternal(key, openSigner, destroySigner, signal);
        emit({ type: "destroyed", kid, uri });
      } catch (error) {
        emit({ type: "destroyed", kid, uri, error: asJwksdError(error) });
      }
    }
  }

  async function updateSinks(): Promise<void> {
    // The short cache begins before the new document is out, and ends after it.
    rotating ||= isRotating(records);
    behind = await sinks.giveAll(records, keys);
    if (behind.length === 0) rotating = isRotating(records);
  }

  /** Tells of a target that did not take the keys, when all else is done. It is tried again. */
  function checkSinks(): void {
    if (behind.length > 0) throw behind[0];
  }

  /** Without the store: the steps that every other replica takes as well, in memory only. */
  async function followPlan(): Promise<void> {
    await readyAdvance(records, clock.now())
      .then((planned) => adopt(planned, true))
      .catch(() => {});
  }

  function heldBackBy(kid: string, error: unknown): void {
    if (!signal.aborted) emit({ type: "held-back", kid, error: asJwksdError(error) });
  }

  function emit(event: ManagerEvent): void {
    // A report that fails, or rejects later, must not stop the keys or end the process.
    (async () => onEvent?.(event))().catch(() => {});
  }

  // Before anything is read, so that no commit between the two is missed.
  store.watch(turnLater, { signal });
  await inTurn(turn).catch(async (error: unknown) => {
    if (records.length > 0) return;
    await close();
    throw error;
  });
  if (!vault.isVerified) emit({ type: "unsealed" });

  async function close(): Promise<void> {
    closing.abort(new StoreError("ERR_CLOSED", "the key manager was closed"));
    cancelTimer?.();
    await turns;
    await opener.close();
  }

  return {
    policy,
    get records() {
      return records;
    },
    get options() {
      return {
        issuer,
        ...keysetsOf(records, keys),
        jwksRotationActive: () => rotating,
        maxTokenLifetimeSeconds: policy.maxTokenLifetimeSeconds,
      };
    },
    async attach(sink) {
      if (typeof sink?.update !== "function") throw new ConfigError("ERR_OPTION_INVALID", "a sink has no update()");
      return inTurn(() => sinks.give(sink, records, keys));
    },
    execute: (command) =>
      inTurn(async () => {
        const change = await compareAndSet(store, (stored) => obey(stored, command), { clock, signal });
        // It is done, whatever becomes of the rest.
        await adopt(change).then(checkSinks).then(succeeded, failed);
        return change;
      }),
    async makeKey(use, alg = nextAlg(records, use)) {
      if (use !== "sig" || createSigner === undefined) return makeLocalKey(use, alg, vault);
      const signer = await createSigner({ issuer, signal });
      return externalKey(signer).finally(() => signer.close());
    },
    async decryptionKey({ kid = "" }) {
      signal.throwIfAborted();
      if (!keys.decryptionKeys.has(kid)) await askStore();
      const key = keys.decryptionKeys.get(kid);
      if (key !== undefined) return key;
      throw new SignerError("ERR_SIGNER_KEY_STATE", `no encryption key with the kid ${JSON.stringify(kid)} is kept`);
    },
    close,
  };
}

/** What is noted on a key and is no change of it. */
const notes: ReadonlySet<string> = new Set<keyof KeyRecord>(["successorClaim", "maxTokenLifetimeSeconds"]);

function keysText(records: readonly KeyRecord[]): string {
  return JSON.stringify(records, (name, value: unknown) => (notes.has(name) ? undefined : value));
}

/** Nothing has happened but that waits have started again. */
function isRestart({ events }: Change): boolean {
  return events.length > 0 && events.every(({ type }) => type === "restarted");
}

function asJwksdError(error: unknown): JwksdError {
  if (error instanceof JwksdError) return error;
  return new StoreError("ERR_STORE_UNAVAILABLE", "the keys could not be managed; see the cause", { cause: error });
}
