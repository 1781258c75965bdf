import { notify } from "../async.ts";
import { systemClock } from "../clock.ts";
import { ConfigError, type ErrorCode, InternalError, JwksdError, SignerError, StoreError } from "../errors.ts";
import { type Change, advance } from "../rotation/advance.ts";
import { announce, applyCommand } from "../rotation/commands.ts";
import { rotationPolicy } from "../rotation/policy.ts";
import { activeKey, announcedKey, isRotating, nextAlg, publishedKeys, uriOf } from "../rotation/records.ts";
import { announceNext, leaseNext, reasonForNext } from "../rotation/successor.ts";
import { isWaitingForReplicas, noteWaits } from "../rotation/waits.ts";
import { changedRecords } from "../store/changed-records.ts";
import type { KeyRecord, Snapshot } from "../store/store.ts";
import { createClocks } from "./clocks.ts";
import type { Decision } from "./compare-and-set.ts";
import { createCopyLease } from "./copy-lease.ts";
import { CannotSign, type Changed, createKeyring } from "./keyring.ts";
import { type Turned, createLoop } from "./loop.ts";
import { makeLocalKey } from "./make-key.ts";
import { createManagerMetrics } from "./metrics.ts";
import { checkManagerOptions } from "./options.ts";
import { servedBy } from "./owner.ts";
import { type OpenKeys, keysetsOf } from "./private-keys.ts";
import { rewrap } from "./rewrap.ts";
import { createReplica } from "./replica.ts";
import { createSchedule } from "./schedule.ts";
import { type Given, createSinks } from "./sinks.ts";
import type { KeyManager, KeyManagerOptions, KeySink, ManagerEvent } from "./types.ts";
import { type Vault, createVault } from "./vault.ts";
import { readWrappingKeys } from "./wrapping.ts";

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

/** The keys in use. */
interface State extends Given {
  readonly records: readonly KeyRecord[];
  readonly revision: number;
  readonly keys: OpenKeys;
}

/** A copy of the documents that is served without the process that writes it. */
export interface Copy extends KeySink {
  /** The same for every process that writes this copy. */
  readonly name: string;
}

export interface ManageOptions extends Omit<KeyManagerOptions, "store" | "wrappingKeys"> {
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
  const { issuer, onEvent, copy, signs = copy === undefined } = options;
  const clock = options.clock ?? systemClock;
  const policy = rotationPolicy(options.policy ?? undefined);
  const leaseMs = policy.leaseSeconds * 1000;
  const closing = new AbortController();
  const { signal } = closing;
  const measured = createManagerMetrics(clock);
  const keyring = createKeyring(vault, { ...options, policy, clock, signal, onCall: measured.onCall });
  const { createSigner } = keyring;
  const sinks = createSinks(clock, signal, copy);
  const lease = { leaseMs, clock, signal, onCall: measured.onCall };
  const replica =
    copy === undefined
      ? createReplica(vault.store, { ...lease, name: options.replicaName ?? "jwksd" })
      : createCopyLease(vault.store, { ...lease, name: copy.name });
  const clocks = createClocks(clock, policy.clockSkewSeconds * 1000);
  const emit = (event: ManagerEvent): void => {
    measured.note(event);
    notify(onEvent, event);
  };
  const loop = createLoop(turn, { clock, signal, onFailure, onRecovery: () => emit({ type: "recovered" }) });
  const schedule = createSchedule(policy, clocks);
  const me = crypto.randomUUID();
  let state: State = {
    records: [],
    revision: 0,
    keys: { signers: new Map(), decryptionKeys: new Map(), unopened: new Map() },
    isRotating: false,
  };
  /** Whether the store has to be looked at, and the time by which it has to be in any case. */
  let mustLook = true;
  let lookAt = -Infinity;
  let isFenced = false;
  let isShort = false;

  // ---- the plan

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
    const isRenewal = !mustLook && clock.now() < lookAt && replica.told.publishes === state.revision;
    if (isRenewal && (await replica.tell(replica.told)) === state.revision) return turned();
    mustLook = true;
    do {
      await adopt(await takeSteps());
      await makeExternalKey();
      // What was just told may be what a step waited for.
    } while (await acknowledge());
    [mustLook, isFenced] = [false, false];
    return turned();
  }

  /** When the next turn is due. @throws what a sink threw: it is tried again */
  function turned(): Turned {
    const { records } = state;
    sinks.check();
    const now = clocks.now();
    const { wakeAt } = schedule.plan(records, now);
    const looks = isWaitingForReplicas(records, policy) ? [Math.min(Math.max(leaseMs / 60, 250), 60_000)] : [];
    const lookInMs = Math.max(Math.min(wakeAt - now, ...schedule.triesInMs(now), ...looks), 0);
    lookAt = clock.now() + lookInMs;
    // After a failure to make the next key, the next attempt tells whether it is mended.
    const isMaking = activeKey(records, "sig")?.successorLease?.by === me;
    const isPending = isMaking && announcedKey(records, "sig") === undefined;
    return { wakeInMs: Math.min(lookInMs, replica.renewInMs), isPending };
  }

  async function onFailure(error: unknown, retryInMs: number): Promise<void> {
    mustLook = true;
    // Before there are keys it has not started.
    if (state.records.length === 0) return;
    schedule.noteTried(state.records);
    emit({ type: "failed", error: asJwksdError(error), retryInMs });
    if (!replica.holds && !isFenced) {
      isFenced = true;
      emit({ type: "fenced" });
    }
    // The others may go on without it: what it serves now must not live for long.
    if (error instanceof StoreError && outages.has(error.code)) await updateSinks(true);
  }

  async function takeSteps(): Promise<Changed> {
    let stored: Changed | undefined;
    for (;;) {
      try {
        return await keyring.change((records, now, snapshot) => {
          stored = { records, events: [], before: records, now, revision: snapshot.revision };
          return step(records, now, snapshot);
        });
      } catch (error) {
        if (error instanceof CannotSign) {
          schedule.holdBack(error.kid);
          emitHeldBack(error.kid, error.cause);
          continue;
        }
        // What others did counts, even if this replica cannot write.
        if (stored !== undefined && stored.records.length > 0) await adopt(stored);
        throw error;
      }
    }
  }

  /** The records after all that is due now, with the next keys where they are made in memory. */
  async function step(stored: readonly KeyRecord[], now: number, snapshot: Snapshot): Promise<Decision> {
    const { counted, over } = clocks.look(snapshot);
    for (const lease of over) await replica.end(lease);
    const own: Change = vault.isTaking
      ? await rewrap(stored, vault, now, `the issuer ${JSON.stringify(issuer)} was chosen`)
      : { records: stored, events: [] };
    schedule.forgetTaken(own.records, now);
    const ahead = schedule.plan(own.records, now, { revision: snapshot.revision, leases: counted });
    let change: Change = { records: ahead.records, events: [...own.events, ...ahead.events] };
    for (const use of ahead.due) {
      if (use === "sig" && createSigner !== undefined) continue;
      const key = await makeLocalKey(use, nextAlg(change.records, use), vault);
      change = announce(change, key, now, reasonForNext(change.records.length === 0));
    }
    const records = noteWaits(change.records, policy, { announces: true });
    const leases = snapshot.leases.filter((lease) => !over.includes(lease));
    return { ...change, records, ...(ahead.reliesOnReplicas && { leases }) };
  }

  // ---- keys in an HSM or key service

  /** One replica makes the next key, so that no others are left over in the HSM. */
  async function makeExternalKey(): Promise<void> {
    if (createSigner === undefined || signal.aborted) return;
    if (!advance(state.records, policy, clocks.now()).due.includes("sig")) return;
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
    const { before, records } = await keyring.change((stored, now) => leaseNext(stored, me, policy, now));
    return records !== before;
  }

  async function destroyEnded(change: Change): Promise<void> {
    for await (const { kid, uri, error } of keyring.destroyEnded(change)) {
      emit({ type: "destroyed", kid, uri, ...(error !== undefined && { error: asJwksdError(error) }) });
    }
  }

  // ---- taking over

  /** Opens what is new, and gives it to the sinks. Where that fails, the old keys stay in use. */
  async function adopt(change: Changed): Promise<void> {
    const { records, events, revision } = change;
    const before = state.records;
    const isNew = isOther(records, before, JSON.stringify);
    // Keys that were there before it started are no change, and a note on a record is none.
    const isChange = isOther(records, before, withoutNotes) && (before.length > 0 || events.length > 0);
    const keys = isNew ? await keyring.open(records) : state.keys;
    if (isNew) await announceSigning(records, keys, revision);
    state = { records, revision, keys, isRotating: state.isRotating };
    await updateSinks(isRotating(records));
    // Now nothing signs with the others any more.
    if (!sinks.isBehind) await keyring.closeUnused(records);
    if (isChange) emit({ type: "changed", by: events.length > 0 ? "this" : "another", records, events });
    // There is time to mend it before it is needed.
    if (isNew) for (const [kid, error] of state.keys.unopened) emitUnopened(kid, error);
    void destroyEnded(change);
  }

  /** Tells the others of the kid with which this replica signs next, before it does. */
  async function announceSigning(records: readonly KeyRecord[], keys: OpenKeys, revision: number): Promise<void> {
    const { told } = replica;
    const next = signingKids(records, keys).filter((kid) => !told.signsWith.includes(kid));
    if (next.length === 0) return;
    try {
      await replica.tell({ ...told, signsWith: [...told.signsWith, ...next] }, revision);
    } catch (error) {
      // It goes on with the key that it has, if it may. Else it publishes what is new, and cannot sign.
      const kids = new Set(publishedKeys(records, "sig").map(({ kid }) => kid));
      if (told.signsWith.some((kid) => kids.has(kid))) throw error;
    }
  }

  /** Tells the others what this replica publishes and signs with. Resolves to whether that is new to them. */
  async function acknowledge(): Promise<boolean> {
    const { revision, records, keys } = state;
    // While a target does not publish the newest keys, what was told before stays true.
    const next = sinks.isBehind ? replica.told : { publishes: revision, signsWith: signingKids(records, keys) };
    const isNew = JSON.stringify(next) !== JSON.stringify(replica.told);
    if (isNew || replica.renewInMs === 0) await replica.tell(next);
    return isNew;
  }

  const signingKids = (records: readonly KeyRecord[], keys: OpenKeys): string[] => {
    const active = activeKey(records, "sig");
    if (!signs || active === undefined || !keys.signers.has(active.kid)) return [];
    // What it signs may live longer than others would keep the key.
    return noteWaits([active], policy)[0] === active ? [active.kid] : [];
  };

  /**
   * The short cache begins before the new document is out, and ends after it. It is on while the store is out of reach, too: what is served
   * then may be old.
   */
  async function updateSinks(isRotating: boolean): Promise<void> {
    state = { ...state, isRotating };
    isShort ||= isRotating;
    await sinks.giveAll(state);
    if (!sinks.isBehind) isShort = isRotating;
  }

  function emitUnopened(kid: string, error: unknown): void {
    if (activeKey(state.records, "sig")?.kid !== kid) emitHeldBack(kid, error);
    else emit({ type: "unopened", kid, error: asJwksdError(error) });
  }

  function emitHeldBack(kid: string, error: unknown): void {
    if (!signal.aborted) emit({ type: "held-back", kid, error: asJwksdError(error) });
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
    get isReady() {
      return replica.isReady;
    },
    get isAcknowledged() {
      return replica.told.publishes === state.revision && !sinks.isBehind;
    },
    get options() {
      return {
        issuer,
        ...keysetsOf(state.records, state.keys),
        jwksRotationActive: () => isShort,
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
      return loop.run(() => sinks.give(sink, state));
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
    makeKey: (use, alg = nextAlg(state.records, use)) => keyring.makeKey(use, alg),
    async decryptionKey({ kid = "" }) {
      signal.throwIfAborted();
      if (!state.keys.decryptionKeys.has(kid)) {
        mustLook = true;
        await loop.ask();
      }
      const key = state.keys.decryptionKeys.get(kid);
      if (key !== undefined) return key;
      throw new SignerError("ERR_SIGNER_KEY_STATE", `no encryption key with the kid ${JSON.stringify(kid)} is kept`);
    },
    metrics: () =>
      measured.metrics({
        records: state.records,
        policy,
        published: replica.told.publishes,
        stored: state.revision,
        isReady: replica.isReady,
      }),
    close,
  };
}

/** What is noted on a key and is no change of it. */
const notes: ReadonlySet<string> = new Set<keyof KeyRecord>([
  "successorLease",
  "publishedAt",
  "unusedAt",
  "announceForSeconds",
  "retireForSeconds",
]);

const withoutNotes = (record: KeyRecord): string =>
  JSON.stringify(record, (name, value: unknown) => (notes.has(name) ? undefined : value));

function isOther(
  records: readonly KeyRecord[],
  before: readonly KeyRecord[],
  textOf: (record: KeyRecord) => string,
): boolean {
  const [next, old] = [changedRecords(records, before), changedRecords(before, records)];
  return next.length !== old.length || next.some((record, index) => textOf(record) !== textOf(old[index] as KeyRecord));
}

function asJwksdError(error: unknown): JwksdError {
  if (error instanceof JwksdError) return error;
  return new InternalError("ERR_INTERNAL", "something failed in an unknown way; see the cause", { cause: error });
}
