import type { Clock, Instant } from "../../base/clock.ts";
import { asJwksdError } from "../../base/errors.ts";
import type { StoredEvent, StoreDocument } from "../custody/document.ts";
import { type KeyEvent, type KeyRecord, type LiveRecord, activeKey, isLive, isRotating } from "../rules/records.ts";
import type { Change } from "../rules/advance.ts";
import type { Keyring } from "./keyring.ts";
import type { OpenKeys } from "./private-keys.ts";
import type { StoreAccess } from "./store-access.ts";
import type { SubscriberUpdate, Subscribers } from "./subscribers.ts";
import type { KeySubscriber } from "../../provider/managed-keys.ts";
import type { ManagerEvent, PublicRecord } from "./types.ts";

/** The keys that a process serves and signs with, which are replaced as a whole. */
export interface InUse {
  /** `undefined` before the first. */
  readonly document: StoreDocument | undefined;
  readonly keys: OpenKeys;
  /** What all subscribers have taken. */
  readonly published: Published | undefined;
}

export interface Published {
  readonly document: StoreDocument;
  /** When the confirmed word was sent after which it was read. */
  readonly confirmed: Instant;
}

export interface KeysInUse {
  readonly state: InUse;
  readonly records: readonly KeyRecord[];
  /** The active signing key, if it cannot be opened here. */
  readonly unavailable: unknown;
  /**
   * Whether the short Cache-Control is sent. The short time begins before the new document is out, and ends after it is out. While the store
   * is out of reach, or the active key cannot be opened, the Cache-Control is short, too.
   */
  readonly isShort: boolean;
  /** Gives the keys to a new subscriber. @throws see `Subscribers.give` */
  subscribe(subscriber: KeySubscriber): Promise<void>;
  /** Sends the short Cache-Control: the document may be old. */
  shorten(): Promise<void>;
  /**
   * Takes over what was found or committed, and gives it to the subscribers.
   *
   * @param confirmed when the confirmed word was sent after which it was read
   */
  adopt(document: StoreDocument, confirmed: Instant): Promise<void>;
}

export interface KeysInUseOptions {
  readonly keyring: Keyring;
  readonly subscribers: Subscribers;
  /** Whether this process signs while it may. */
  readonly signs: boolean;
  readonly clock: Clock;
  readonly isOwn: StoreAccess["isOwn"];
  readonly emit: (event: ManagerEvent) => void;
}

/** How long keys that are gone stay published while others are opened. */
const soonMs = 1_000;

const nothing: OpenKeys = { signers: new Map(), decryptionKeys: new Map(), unavailable: new Map() };

export function createKeysInUse({ keyring, subscribers, signs, clock, isOwn, emit }: KeysInUseOptions): KeysInUse {
  let state: InUse = { document: undefined, keys: nothing, published: undefined };
  let isShort = false;
  /** Whether all keys of the document were opened, as far as they can be: workerd may end a round before. */
  let isOpen = true;

  const recordsInUse = (): readonly KeyRecord[] => state.document?.records ?? [];
  const unavailable = (): unknown => {
    const active = activeKey(recordsInUse(), "sig");
    return signs && active !== undefined ? state.keys.unavailable.get(active.kid) : undefined;
  };

  function given(isRotating: boolean): SubscriberUpdate {
    const { records = [], policy: { maxTokenLifetimeSeconds = 0 } = {} } = state.document ?? {};
    return { records, keys: state.keys, isRotating, maxTokenLifetimeSeconds };
  }

  async function updateSubscribers(isRotating: boolean): Promise<void> {
    isShort ||= isRotating;
    await subscribers.giveAll(given(isRotating));
    if (!subscribers.isBehind) isShort = isRotating;
  }

  async function publish(document: StoreDocument, keys: OpenKeys, confirmed: Instant): Promise<void> {
    // Another round may have read a later one meanwhile, where no process lives on.
    if ((state.document?.revision ?? 0) > document.revision) return;
    state = { ...state, document, keys };
    await updateSubscribers(isRotating(document.records) || unavailable() !== undefined);
    if (subscribers.isBehind) return;
    state = { ...state, published: { document, confirmed } };
    keyring.closeUnused(document.records);
  }

  /** Whether something is done within a second. */
  async function isSoon(done: Promise<unknown>): Promise<boolean> {
    const { promise: late, resolve } = Promise.withResolvers<boolean>();
    const cancel = clock.setTimer(() => resolve(false), soonMs);
    const settled = done.then(
      () => true,
      () => true,
    );
    return Promise.race([settled, late]).finally(cancel);
  }

  function emitUnavailable(kid: string, error: unknown): void {
    const type = activeKey(recordsInUse(), "sig")?.kid === kid ? "key-unavailable" : "activation-blocked";
    emit({ type, kid, error: asJwksdError(error) });
  }

  async function destroyEnded(change: Change): Promise<void> {
    for await (const { kid, uri, error } of keyring.destroyEnded(change)) {
      if (error === undefined) emit({ type: "destroyed", kid, uri });
      else emit({ type: "destroy-failed", kid, uri, error: asJwksdError(error) });
    }
  }

  /** Reports commits of any process since the last time. What other processes committed before this one started is not a change. */
  function emitChanges(before: StoreDocument | undefined, document: StoreDocument): void {
    const last = before?.events.at(-1)?.number ?? 0;
    const isNewsOf = (by: "this" | "another") => (event: StoredEvent) =>
      event.number > last && (by === "this") === isOwn(event, document);
    for (const by of before === undefined ? (["this"] as const) : (["another", "this"] as const)) {
      const events = document.events.filter(isNewsOf(by)).map(withoutNumber);
      if (events.length === 0) continue;
      emit({ type: "changed", by, records: document.records.map(withoutPrivateHalf), events });
      if (by === "this") void destroyEnded({ records: document.records, events });
    }
  }

  return {
    get state() {
      return state;
    },
    get records() {
      return recordsInUse();
    },
    get unavailable() {
      return unavailable();
    },
    get isShort() {
      return isShort;
    },
    async subscribe(subscriber) {
      if (state.document === undefined) subscribers.add(subscriber);
      else await subscribers.give(subscriber, given(isShort));
    },
    shorten: () => updateSubscribers(true),

    async adopt(document, confirmed) {
      const { document: before, keys: former } = state;
      const isNew = before?.commits.at(-1) !== document.commits.at(-1) || before === undefined;
      const opening =
        isNew || !isOpen || former.unavailable.size > 0 ? keyring.open(document.records) : Promise.resolve(former);
      // An HSM that hangs keeps no revoked key in the set, and no process from taking over what others did.
      isOpen = false;
      if (!(await isSoon(opening))) await publish(document, keyring.opened(document.records), confirmed);
      const keys = await opening;
      isOpen = true;
      await publish(document, keys, confirmed);
      if (!isNew) return;
      emitChanges(before, document);
      // An operator has time to mend the key before it has to sign.
      for (const [kid, error] of keys.unavailable) emitUnavailable(kid, error);
    },
  };
}

function withoutPrivateHalf(record: KeyRecord): PublicRecord {
  if (!isLive(record)) return record;
  const { privateHalf: _, ...rest }: LiveRecord = record;
  return rest;
}

const withoutNumber = ({ number: _number, ...event }: StoredEvent): KeyEvent => event;
