import { asJwksdError } from "../../base/errors.ts";
import type { Change } from "../rules/advance.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { activeKey, isRotating, publishedKeys } from "../rules/records.ts";
import { noteWaits } from "../rules/waits.ts";
import type { KeyRecord } from "../store/store.ts";
import type { Changed } from "./compare-and-set.ts";
import type { Keyring } from "./keyring.ts";
import type { OpenKeys } from "./private-keys.ts";
import type { Replica } from "./replica.ts";
import type { Given, Subscribers } from "./subscribers.ts";
import type { ManagerEvent } from "./types.ts";

interface State extends Given {
  readonly revision: number;
}

interface Parts {
  readonly policy: RotationPolicy;
  readonly keyring: Keyring;
  readonly replica: Replica;
  readonly subscribers: Subscribers;
  /** Whether this process signs now. */
  readonly signs: () => boolean;
  readonly emit: (event: ManagerEvent) => void;
}

/** The keys that a process serves and signs with: one state, which takes the place of the one before as a whole. */
export function createKeysInUse({ policy, keyring, replica, subscribers, signs, emit }: Parts) {
  let state: State = {
    records: [],
    revision: 0,
    keys: { signers: new Map(), decryptionKeys: new Map(), unopened: new Map() },
    isRotating: false,
  };
  let isShort = false;

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

  function signingKids(records: readonly KeyRecord[], keys: OpenKeys): string[] {
    const active = activeKey(records, "sig");
    if (!signs() || active === undefined || !keys.signers.has(active.kid)) return [];
    // What it signs may live longer than others would keep the key.
    return noteWaits([active], policy)[0] === active ? [active.kid] : [];
  }

  async function updateSubscribers(isRotating: boolean): Promise<void> {
    state = { ...state, isRotating };
    isShort ||= isRotating;
    await subscribers.giveAll(state);
    if (!subscribers.isBehind) isShort = isRotating;
  }

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
     * Whether caches are to keep what is served for a short time. That begins before the new document is out, and ends after it. It is so
     * while the store is out of reach, too: what is served then may be old.
     */
    get isShort() {
      return isShort;
    },

    /** The others may go on without this process: what it serves now must not live for long. */
    shorten: (): Promise<void> => updateSubscribers(true),

    /** Opens what is new, and gives it to the subscribers. Where that fails, the old keys stay in use. */
    async adopt(change: Changed): Promise<void> {
      const { records, events, revision } = change;
      const before = state.records;
      const isNew = isOther(records, before, JSON.stringify);
      // Keys that were there before it started are no change, and a note on a record is none.
      const isChange = isOther(records, before, withoutNotes) && (before.length > 0 || events.length > 0);
      const keys = isNew ? await keyring.open(records) : state.keys;
      if (isNew) await announceSigning(records, keys, revision);
      state = { records, revision, keys, isRotating: state.isRotating };
      await updateSubscribers(isRotating(records));
      // Now nothing signs with the others any more.
      if (!subscribers.isBehind) await keyring.closeUnused(records);
      if (isChange) emit({ type: "changed", by: events.length > 0 ? "this" : "another", records, events });
      // There is time to mend it before it is needed.
      if (isNew) for (const [kid, error] of keys.unopened) emitUnopened(kid, error);
      void destroyEnded(change);
    },

    /** Tells the others what this replica publishes and signs with. Resolves to whether that is new to them. */
    async acknowledge(): Promise<boolean> {
      const { revision, records, keys } = state;
      // While a target does not publish the newest keys, what was told before stays true.
      const next = subscribers.isBehind ? replica.told : { publishes: revision, signsWith: signingKids(records, keys) };
      const isNew = JSON.stringify(next) !== JSON.stringify(replica.told);
      if (isNew || replica.renewInMs === 0) await replica.tell(next);
      return isNew;
    },
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
  return (
    records.length !== before.length ||
    records.some((record, index) => textOf(record) !== textOf(before[index] as KeyRecord))
  );
}
