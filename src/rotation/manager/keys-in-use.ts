import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import { asJwksdError } from "../../base/errors.ts";
import type { Change } from "../rules/advance.ts";
import { type RotationPolicy, drainSeconds } from "../rules/policy.ts";
import { activeKey, isRotating, publishedKeys, retiringKeys } from "../rules/records.ts";
import { noteWaits } from "../rules/waits.ts";
import type { KeyRecord } from "../store/store.ts";
import type { Changed } from "./compare-and-set.ts";
import type { Keyring } from "./keyring.ts";
import type { OpenKeys } from "./private-keys.ts";
import { type LeaseContent, type Replica, fenced } from "./replica.ts";
import type { SubscriberUpdate, Subscribers } from "./subscribers.ts";
import type { ManagerEvent } from "./types.ts";

interface State extends SubscriberUpdate {
  readonly revision: number;
}

interface Parts {
  readonly policy: RotationPolicy;
  readonly keyring: Keyring;
  readonly replica: Replica;
  readonly subscribers: Subscribers;
  /** Whether this process may sign now. */
  readonly maySign: () => boolean;
  readonly emit: (event: ManagerEvent) => void;
  readonly clock: Clock;
}

const drainMs = drainSeconds * 1000;

/** The keys that a process serves and signs with: one state, which takes the place of the one before as a whole. */
export function createKeysInUse({ policy, keyring, replica, subscribers, maySign, emit, clock }: Parts) {
  let state: State = {
    records: [],
    revision: 0,
    keys: { signers: new Map(), decryptionKeys: new Map(), unopened: new Map() },
    isRotating: false,
  };
  let isShort = false;
  /** By kid: since when a key that was replaced drains, while the lease names it. */
  const drains = new Map<string, Moment<"monotonic">>();

  /** Reports the kid with which this replica signs next to the others, before it signs. */
  async function announceSigning(records: readonly KeyRecord[], keys: OpenKeys, revision: number): Promise<void> {
    const { lastReported, signsWith } = replica;
    const next = signingKids(records, keys).filter((kid) => !signsWith.includes(kid));
    if (next.length === 0) return;
    try {
      await replica.report({ ...lastReported, signsWith: [...signsWith, ...next] }, revision);
    } catch (error) {
      // The replica goes on signing with its old key if that is still published. Else it publishes the new keys, and cannot sign.
      const kids = new Set(publishedKeys(records, "sig").map(({ kid }) => kid));
      if (signsWith.some((kid) => kids.has(kid))) throw error;
    }
  }

  function signingKids(records: readonly KeyRecord[], keys: OpenKeys): string[] {
    const active = activeKey(records, "sig");
    if (!maySign() || active === undefined || !keys.signers.has(active.kid)) return [];
    // Unless the record notes this policy's waits, others may remove the key while tokens of this process live.
    return noteWaits([active], policy)[0] === active ? [active.kid] : [];
  }

  /** How much longer this process may sign with a key, in milliseconds: `Infinity` before its drain begins, 0 for a revoked or removed key. */
  function drainsForMs(kid: string): number {
    if (!publishedKeys(state.records, "sig").some((record) => record.kid === kid)) return 0;
    const since = drains.get(kid);
    return since === undefined ? Infinity : Math.max(drainMs - msBetween(since, monotonicNow(clock)), 0);
  }

  /** The replaced keys that the lease goes on naming. The drain of a key begins when all subscribers have its successor. */
  function drainingKids(): string[] {
    if (!maySign()) return [];
    const replaced = retiringKeys(state.records, "sig").filter(({ kid }) => replica.signsWith.includes(kid));
    for (const { kid } of replaced) if (!drains.has(kid)) drains.set(kid, monotonicNow(clock));
    return replaced.map(({ kid }) => kid).filter((kid) => drainsForMs(kid) > 0);
  }

  async function updateSubscribers(isRotating: boolean): Promise<void> {
    state = { ...state, isRotating };
    isShort ||= isRotating;
    await subscribers.giveAll(state);
    if (!subscribers.isBehind) isShort = isRotating;
  }

  const newest = (): LeaseContent => ({
    publishes: state.revision,
    signsWith: [...signingKids(state.records, state.keys), ...drainingKids()],
  });

  /** While a subscriber does not publish the newest keys, the last report stays true. */
  const lastReport = (): LeaseContent => ({
    ...replica.lastReported,
    signsWith: replica.signsWith.filter((kid) => drainsForMs(kid) > 0),
  });

  function emitUnopened(kid: string, error: unknown): void {
    const type = activeKey(state.records, "sig")?.kid === kid ? "unopened" : "held-back";
    emit({ type, kid, error: asJwksdError(error) });
  }

  async function destroyEnded(change: Change): Promise<void> {
    for await (const { kid, uri, error } of keyring.destroyEnded(change)) {
      emit({ type: "destroyed", kid, uri, ...(error !== undefined && { error: asJwksdError(error) }) });
    }
  }

  return {
    get state() {
      return state;
    },

    /**
     * Whether the short Cache-Control is sent. The short time begins before the new document is out, and ends after it is out. While the
     * store is out of reach, the Cache-Control is short, too, because the document may be old.
     */
    get isShort() {
      return isShort;
    },

    /** Sends the short Cache-Control: other replicas may go on without this process, so caches must not keep its set for long. */
    shorten: (): Promise<void> => updateSubscribers(true),

    /** Opens the new keys, and gives them to the subscribers. If a key does not open, the old keys stay in use. */
    async adopt(change: Changed): Promise<void> {
      const { records, events, revision } = change;
      const before = state.records;
      const isNew = isOther(records, before, JSON.stringify);
      // Keys that were in the store before this process started are no change, and neither is a note on a record.
      const isChange = isOther(records, before, withoutNotes) && (before.length > 0 || events.length > 0);
      const keys = isNew ? await keyring.open(records) : state.keys;
      if (isNew) await announceSigning(records, keys, revision);
      state = { records, revision, keys, isRotating: state.isRotating };
      await updateSubscribers(isRotating(records));
      // Now nothing begins to sign with keys that are not in the records.
      if (!subscribers.isBehind) keyring.closeUnused(records, replica.signsWith);
      if (isChange) {
        const by = events.length > 0 ? "this" : "another";
        emit({ type: "changed", by, records: records.map(withoutPrivateHalf), events });
      }
      // An operator has time to mend the key before it has to sign.
      if (isNew) for (const [kid, error] of keys.unopened) emitUnopened(kid, error);
      void destroyEnded(change);
    },

    /** Reports to the others what this replica publishes and signs with. Resolves to whether the report says something new. */
    async acknowledge(): Promise<boolean> {
      const { revision } = state;
      const next = subscribers.isBehind ? lastReport() : newest();
      const isNew = JSON.stringify(next) !== JSON.stringify(replica.lastReported);
      const isMore = next.signsWith.some((kid) => !replica.signsWith.includes(kid));
      if (isNew || isMore || replica.renewInMs === 0) await replica.report(next, isMore ? revision : undefined);
      for (const kid of drains.keys()) if (!replica.signsWith.includes(kid)) drains.delete(kid);
      return isNew;
    },

    /** How long it is until a key has drained, in milliseconds; 0 until that is reported. */
    get drainsInMs() {
      return Math.min(...[...drains.keys()].map(drainsForMs), Infinity);
    },

    /** @throws SignerError `ERR_SIGNER_FENCED` if the lease does not name the key, or its drain is over */
    checkMaySign(kid: string): void {
      if (drainsForMs(kid) === 0)
        throw fenced(`${JSON.stringify(kid)} was replaced; take the key anew for each request`);
      replica.checkMaySign(kid);
    },
  };
}

export type KeysInUse = ReturnType<typeof createKeysInUse>;

function withoutPrivateHalf(record: KeyRecord): Omit<KeyRecord, "privateHalf"> {
  const { privateHalf: _, ...rest } = record;
  return rest;
}

/** Members of a record that are notes, and no change of the key. */
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
  return (
    records.length !== before.length ||
    records.some((record, index) => textOf(record) !== textOf(before[index] as KeyRecord))
  );
}
