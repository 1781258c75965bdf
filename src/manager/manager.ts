import { notify } from "../async.ts";
import { systemClock } from "../clock.ts";
import { ConfigError, InternalError, JwksdError, SignerError, StoreError } from "../errors.ts";
import { type Advance, type Change, advance, endOfWait } from "../rotation/advance.ts";
import { announce, applyCommand } from "../rotation/commands.ts";
import { rotationPolicy } from "../rotation/policy.ts";
import { activeKey, announcedKey, isRotating, nextAlg, uriOf } from "../rotation/records.ts";
import { announceNext, announcedLate, leaseNext, reasonForNext } from "../rotation/successor.ts";
import type { KeyRecord } from "../store/store.ts";
import { CannotSign, createKeyring } from "./keyring.ts";
import { type Turned, createLoop } from "./loop.ts";
import { makeLocalKey } from "./make-key.ts";
import { checkManagerOptions } from "./options.ts";
import { servedBy } from "./owner.ts";
import { type OpenKeys, keysetsOf } from "./private-keys.ts";
import { rewrap } from "./rewrap.ts";
import { createSinks } from "./sinks.ts";
import type { KeyManager, KeyManagerOptions, ManagerEvent } from "./types.ts";
import { type Vault, createVault } from "./vault.ts";
import { readWrappingKeys } from "./wrapping.ts";

/** How soon a key that could not sign is tried again. */
const heldBackMs = 60_000;
/** Replicas whose clocks are years apart start each other's waits again. Each does so once in this time, so the other one can act. */
const restartMs = 60_000;

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

/** The keys in use. */
interface State {
  readonly records: readonly KeyRecord[];
  readonly keys: OpenKeys;
  /** Whether the rotation mode is on. */
  readonly rotating: boolean;
}

/** Manages the keys of a vault. @throws see {@link createKeyManager} */
export async function manageKeys(
  vault: Vault,
  options: Omit<KeyManagerOptions, "store" | "wrappingKeys">,
): Promise<KeyManager> {
  const { issuer, onEvent } = options;
  const clock = options.clock ?? systemClock;
  const policy = rotationPolicy(options.policy ?? undefined);
  const closing = new AbortController();
  const { signal } = closing;
  const keyring = createKeyring(vault, { ...options, policy, clock, signal });
  const { createSigner } = keyring;
  const sinks = createSinks(clock, signal);
  const replica = crypto.randomUUID();
  const emit = (event: ManagerEvent): void => notify(onEvent, event);
  const loop = createLoop(turn, {
    clock,
    signal,
    // Before there are keys it has not started.
    onFailure(error, retryInMs) {
      if (state.records.length === 0) return;
      for (const { kid } of dueNow(state.records, clock.now())) tried.add(kid);
      emit({ type: "failed", error: asJwksdError(error), retryInMs });
    },
    onRecovery: () => emit({ type: "recovered" }),
  });
  /** Announced keys that could not sign when their wait was over, and until when they are not tried again. */
  const heldBack = new Map<string, number>();
  /** Keys whose step this replica tried to take when it was due. They have missed nothing, however late they take it. */
  const tried = new Set<string>();
  let state: State = {
    records: [],
    keys: { signers: new Map(), decryptionKeys: new Map(), unopened: new Map() },
    rotating: false,
  };
  let restartedAt = -Infinity;

  // ---- the plan

  /** Takes what is due, and takes over what others did. */
  async function turn(): Promise<Turned> {
    await adopt(await takeSteps());
    await makeExternalKey();
    return turned();
  }

  /** When the next turn is due. @throws what a sink threw: it is tried again */
  function turned(): Turned {
    const { records } = state;
    sinks.check();
    const now = clock.now();
    const { wakeAt } = planned(records, now);
    // One whose time is over has just been tried.
    const tries = [...heldBack.values()].map((until) => Math.max(until, now + 1_000));
    // After a failure to make the next key, the next attempt tells whether it is mended.
    const isMaking = activeKey(records, "sig")?.successorLease?.by === replica;
    const isPending = isMaking && announcedKey(records, "sig") === undefined;
    return { wakeAt: Math.min(wakeAt, ...tries), isPending };
  }

  async function takeSteps(): Promise<Change> {
    let stored: readonly KeyRecord[] = [];
    for (;;) {
      try {
        return await keyring.change((records, now) => step((stored = records), now));
      } catch (error) {
        if (error instanceof CannotSign) {
          heldBack.set(error.kid, clock.now() + heldBackMs);
          tried.add(error.kid);
          emitHeldBack(error.kid, error.cause);
          continue;
        }
        // What others did counts, even if this replica cannot write.
        if (stored.length > 0) await adopt({ records: stored, events: [] });
        throw error;
      }
    }
  }

  /** The records after all that is due now, with the next keys where they are made in memory. */
  async function step(stored: readonly KeyRecord[], now: number): Promise<Change> {
    const own: Change = vault.isTaking
      ? await rewrap(stored, vault, now, `the issuer ${JSON.stringify(issuer)} was chosen`)
      : { records: stored, events: [] };
    const taken = announcedLate(own, state.records, policy, now);
    forgetTaken(taken.records, now);
    const ahead = planned(taken.records, now);
    if (ahead.due.length === 0 && isRestart(ahead)) {
      if (Math.abs(now - restartedAt) < restartMs) return taken;
      restartedAt = now;
    }
    let change: Change = { records: ahead.records, events: [...taken.events, ...ahead.events] };
    for (const use of ahead.due) {
      if (use === "sig" && createSigner !== undefined) continue;
      const key = await makeLocalKey(use, nextAlg(change.records, use), vault);
      change = announce(change, key, now, reasonForNext(change.records.length === 0));
    }
    return change;
  }

  function planned(records: readonly KeyRecord[], now: number): Advance {
    const notYet = [...heldBack].flatMap(([kid, until]) => (until > now ? [kid] : []));
    return advance(records, policy, now, new Set(notYet), tried);
  }

  function dueNow(records: readonly KeyRecord[], now: number): readonly KeyRecord[] {
    return records.filter((record) => (endOfWait(record, policy) ?? Infinity) <= now);
  }

  function forgetTaken(records: readonly KeyRecord[], now: number): void {
    const due = new Set(dueNow(records, now).map(({ kid }) => kid));
    for (const kid of tried) if (!due.has(kid)) tried.delete(kid);
    for (const [kid, until] of heldBack) {
      if (!due.has(kid)) heldBack.delete(kid);
      // A clock that was years ahead would hold it back for years.
      else if (until > now + heldBackMs) heldBack.set(kid, now);
    }
  }

  // ---- keys in an HSM or key service

  /** One replica makes the next key, so that no others are left over in the HSM. */
  async function makeExternalKey(): Promise<void> {
    if (createSigner === undefined || signal.aborted) return;
    if (!advance(state.records, policy, clock.now()).due.includes("sig")) return;
    // There is no record yet that could bear a lease for the first key.
    if (state.records.length > 0 && !(await leaseNextKey())) return;
    const key = await keyring.makeKey("sig", "ES256");
    const uri = uriOf(key) as string;
    let known: readonly KeyRecord[] = state.records;
    // A store that fails may have taken it all the same.
    let isUncertain = false;
    try {
      const change = await keyring.change((stored, now) => {
        [known, isUncertain] = [stored, true];
        return announceNext(stored, key, policy, now);
      });
      [known, isUncertain] = [change.records, false];
      await adopt(change);
    } finally {
      if (!known.some((record) => uriOf(record) === uri))
        emit({ type: "orphaned", uri, isDestroyed: !isUncertain && (await keyring.destroyUnrecorded(uri)) });
    }
  }

  /** Whether this replica is the one that makes the next key. */
  async function leaseNextKey(): Promise<boolean> {
    const { before, records } = await keyring.change((stored, now) => leaseNext(stored, replica, policy, now));
    return records !== before;
  }

  async function destroyEnded(change: Change): Promise<void> {
    for await (const { kid, uri, error } of keyring.destroyEnded(change)) {
      emit({ type: "destroyed", kid, uri, ...(error !== undefined && { error: asJwksdError(error) }) });
    }
  }

  // ---- taking over

  /** Opens what is new, and gives it to the sinks. Where that fails, the old keys stay in use. */
  async function adopt(change: Change): Promise<void> {
    const { records, events } = change;
    const before = state.records;
    const isNew = JSON.stringify(records) !== JSON.stringify(before);
    // Keys that were there before it started are no change, and a note on a record is none.
    const isChange = keysText(records) !== keysText(before) && (before.length > 0 || events.length > 0);
    if (isNew) state = { ...state, records, keys: await keyring.open(records) };
    await updateSinks();
    // Now nothing signs with the others any more.
    if (!sinks.isBehind) await keyring.closeUnused(records);
    if (isChange) emit({ type: "changed", by: events.length > 0 ? "this" : "another", records, events });
    // There is time to mend it before it is needed.
    if (isNew) for (const [kid, error] of state.keys.unopened) emitUnopened(kid, error);
    void destroyEnded(change);
  }

  /** The short cache begins before the new document is out, and ends after it. @see RFC 9111 section 5.2.2.1 */
  async function updateSinks(): Promise<void> {
    const { records, keys } = state;
    state = { ...state, rotating: state.rotating || isRotating(records) };
    await sinks.giveAll(records, keys);
    if (!sinks.isBehind) state = { ...state, rotating: isRotating(records) };
  }

  function emitUnopened(kid: string, error: unknown): void {
    if (activeKey(state.records, "sig")?.kid !== kid) emitHeldBack(kid, error);
    else emit({ type: "unopened", kid, error: asJwksdError(error) });
  }

  function emitHeldBack(kid: string, error: unknown): void {
    if (!signal.aborted) emit({ type: "held-back", kid, error: asJwksdError(error) });
  }

  async function close(): Promise<void> {
    closing.abort(new StoreError("ERR_CLOSED", "the key manager was closed"));
    await loop.stop();
    await keyring.close();
  }

  // Before anything is read, so that no commit between the two is missed.
  vault.store.watch(loop.wake, { signal });
  await loop.turn().catch(async (error: unknown) => {
    if (state.records.length > 0) return;
    await close();
    throw error;
  });
  if (!vault.isVerified) emit({ type: "unsealed" });

  return {
    policy,
    get records() {
      return state.records;
    },
    get options() {
      return {
        issuer,
        ...keysetsOf(state.records, state.keys),
        jwksRotationActive: () => state.rotating,
        maxTokenLifetimeSeconds: policy.maxTokenLifetimeSeconds,
      };
    },
    async attach(sink) {
      if (typeof sink?.update !== "function") throw new ConfigError("ERR_OPTION_INVALID", "a sink has no update()");
      return loop.run(() => sinks.give(sink, state.records, state.keys));
    },
    execute: (command) =>
      loop.run(async () => {
        const change = await keyring
          .change((stored, now) => applyCommand(stored, command, policy, now))
          .catch((error: unknown) => {
            throw error instanceof CannotSign ? error.cause : error;
          });
        // It is done, whatever becomes of the rest.
        await loop.ended(adopt(change).then(turned)).catch(() => {});
        return { records: change.records, events: change.events };
      }),
    makeKey: (use, alg = nextAlg(state.records, use)) => keyring.makeKey(use, alg),
    async decryptionKey({ kid = "" }) {
      signal.throwIfAborted();
      if (!state.keys.decryptionKeys.has(kid)) await loop.ask();
      const key = state.keys.decryptionKeys.get(kid);
      if (key !== undefined) return key;
      throw new SignerError("ERR_SIGNER_KEY_STATE", `no encryption key with the kid ${JSON.stringify(kid)} is kept`);
    },
    close,
  };
}

/** What is noted on a key and is no change of it. */
const notes: ReadonlySet<string> = new Set<keyof KeyRecord>(["successorLease", "maxTokenLifetimeSeconds"]);

function keysText(records: readonly KeyRecord[]): string {
  return JSON.stringify(records, (name, value: unknown) => (notes.has(name) ? undefined : value));
}

/** Nothing has happened but that waits have started again. */
function isRestart({ events }: Change): boolean {
  return events.length > 0 && events.every(({ type }) => type === "restarted");
}

function asJwksdError(error: unknown): JwksdError {
  if (error instanceof JwksdError) return error;
  return new InternalError("ERR_INTERNAL", "something failed in an unknown way; see the cause", { cause: error });
}
