import { withDeadline } from "../../base/async.ts";
import type { Instant } from "../../base/clock.ts";
import { JwksdError, RotationError, asJwksdError } from "../../base/errors.ts";
import type { KeySubscriber } from "../../provider/managed-keys.ts";
import type { StoreDocument, StoredEvent } from "../custody/document.ts";
import type { KeyChange } from "../rules/advance.ts";
import {
  type AuditEvent,
  type KeyRecord,
  type LiveRecord,
  activeKey,
  isLive,
  isRotating,
  liveRecords,
} from "../rules/key-records.ts";
import { isTargetBehind } from "../rules/target-records.ts";
import type { ManagerContext } from "./context.ts";
import type { Keyring } from "./key-changes.ts";
import { type OpenKeys, keysetsOf } from "./private-keys.ts";
import type { PublicRecord } from "./types.ts";

/** How long removed keys may stay published while other keys are being opened, in milliseconds. */
const soonMs = 1_000;
/** Maximum time for a subscriber to accept the keys, in milliseconds. */
const updateMs = 10_000;
/**
 * Maximum time for a target to accept the keys, in milliseconds. It is longer than for other subscribers, because the
 * target may be across a network and the purge command may have to clear a cache.
 */
const targetMs = 120_000;

/** A document that all subscribers have accepted. */
export interface Published {
  readonly document: StoreDocument;
  /** Time at which the check-in before the read was sent. */
  readonly confirmed: Instant;
}

/** The keys that a process serves and signs with. Decides what is published, and when. */
export interface CurrentKeys {
  /** `undefined` before the first read. */
  readonly document: StoreDocument | undefined;
  readonly records: readonly KeyRecord[];
  readonly keys: OpenKeys;
  readonly published: Published | undefined;
  /** Error from opening the active signing key, if this process signs but cannot open that key. */
  readonly unavailable: unknown;
  /** Whether all subscribers have accepted the latest keys and, for a target, whether the store has recorded that. */
  readonly isPublished: boolean;
  /**
   * Whether the short Cache-Control is sent. It is sent from just before a rotation's first document is published until
   * just after its last document is published. It is also sent while the store is unavailable or the active key cannot
   * be opened.
   */
  readonly isShort: boolean;
  /**
   * Adds a subscriber and passes it the current keys, if there are any.
   *
   * @throws RotationError `ERR_UPDATE`, and any JwksdError from its `update`
   */
  subscribe(subscriber: KeySubscriber): Promise<void>;
  /** Switches to the short Cache-Control, because the document may be out of date. */
  shorten(): Promise<void>;
  /**
   * Adopts a document that was read or committed: opens its keys, updates the subscribers, and reports the changes.
   *
   * @param confirmed time at which the check-in before the read was sent
   */
  adopt(document: StoreDocument, confirmed: Instant): Promise<void>;
  /** @throws the error from the first subscriber that has not accepted the keys, or the error from opening the active key */
  check(): void;
}

export function createCurrentKeys(context: ManagerContext, keyring: Keyring): CurrentKeys {
  const { access, clock, signal, report, signs, target } = context;
  let document: StoreDocument | undefined;
  let keys: OpenKeys = { signers: new Map(), decryptionKeys: new Map(), unavailable: new Map() };
  let published: Published | undefined;
  let isShort = false;
  /** Whether this process has tried to open every key in the document. workerd may end a round before then. */
  let isOpen = true;
  /**
   * Summary of the keys that each subscriber has accepted; empty if those keys are unknown. A target counts as behind
   * until its first update.
   */
  const accepted = new Map<KeySubscriber, string>(target === undefined ? [] : [[target, ""]]);
  /** Errors from the subscribers that are behind. */
  let failures: readonly unknown[] = [];

  const records = (): readonly KeyRecord[] => document?.records ?? [];

  function unavailable(): unknown {
    const active = activeKey(records(), "sig");
    return signs && active !== undefined ? keys.unavailable.get(active.kid) : undefined;
  }

  /** Returns the part of an update that matters to a subscriber: the live keys without the tombstones. */
  function summaryOf(isRotating: boolean): string {
    const live = liveRecords(records()).map(({ kid, state }) => [kid, state, keys.signers.has(kid)]);
    return JSON.stringify([live, isRotating, document?.policy.maxTokenLifetimeSeconds]);
  }

  async function update(subscriber: KeySubscriber, isRotating: boolean): Promise<void> {
    const summary = summaryOf(isRotating);
    const timeoutMs = subscriber === target ? targetMs : updateMs;
    const expired = (): Error =>
      new RotationError("ERR_UPDATE", `a subscriber did not accept the keys within ${timeoutMs} ms`);
    const work = async (): Promise<void> => subscriber.update(keysetsOf(records(), keys), { isRotating });
    try {
      await withDeadline(work, { clock, timeoutMs, signal, expired });
      accepted.set(subscriber, summary);
    } catch (cause) {
      if (cause instanceof JwksdError) throw cause;
      throw new RotationError("ERR_UPDATE", "a subscriber has not accepted the keys; see the cause", { cause });
    }
  }

  /** Updates, in parallel, all subscribers that do not have the keys yet. */
  async function updateAll(isRotating: boolean): Promise<void> {
    isShort ||= isRotating;
    const summary = summaryOf(isRotating);
    const behind = [...accepted].flatMap(([subscriber, known]) => (known === summary ? [] : [subscriber]));
    // A subscriber may have accepted an update that it reports as failed. Until an update succeeds, it is unknown which
    // keys the subscriber has.
    for (const subscriber of behind) accepted.set(subscriber, "");
    const outcomes = await Promise.allSettled(behind.map((subscriber) => update(subscriber, isRotating)));
    failures = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
    if (failures.length === 0) isShort = isRotating;
  }

  async function publish(next: StoreDocument, nextKeys: OpenKeys, confirmed: Instant): Promise<void> {
    // With `onDemand`, another round may have read a later document in the meantime.
    if ((document?.revision ?? 0) > next.revision) return;
    [document, keys] = [next, nextKeys];
    await updateAll(isRotating(next.records) || unavailable() !== undefined);
    if (failures.length > 0) return;
    published = { document: next, confirmed };
    keyring.closeUnused(next.records);
  }

  /** Waits up to a second for work to end. Resolves to whether it has ended. */
  async function isSoon(work: Promise<unknown>): Promise<boolean> {
    const { promise: late, resolve } = Promise.withResolvers<boolean>();
    const cancel = clock.setTimer(() => resolve(false), soonMs);
    const settled = work.then(
      () => true,
      () => true,
    );
    return Promise.race([settled, late]).finally(cancel);
  }

  function reportUnavailable(kid: string, error: unknown): void {
    const type = activeKey(records(), "sig")?.kid === kid ? "key-unavailable" : "activation-blocked";
    report({ type, kid, error: asJwksdError(error) });
  }

  async function destroyEnded(change: KeyChange): Promise<void> {
    for await (const { kid, uri, error } of keyring.destroyEnded(change)) {
      if (error === undefined) report({ type: "destroyed", kid, uri });
      else report({ type: "destroy-failed", kid, uri, error: asJwksdError(error) });
    }
  }

  /**
   * Reports all commits that any process has made since the last call, except for commits that other processes made
   * before this process started.
   */
  function reportChanges(before: StoreDocument | undefined, after: StoreDocument): void {
    const last = before?.events.at(-1)?.number ?? 0;
    const isNewBy = (by: "this" | "another") => (event: StoredEvent) =>
      event.number > last && (by === "this") === access.isOwn(event, after);
    for (const by of before === undefined ? (["this"] as const) : (["another", "this"] as const)) {
      const events = after.events.filter(isNewBy(by)).map(withoutNumber);
      if (events.length === 0) continue;
      report({ type: "changed", by, records: after.records.map(withoutPrivateHalf), events });
      if (by === "this") void destroyEnded({ records: after.records, events });
    }
  }

  return {
    get document() {
      return document;
    },
    get records() {
      return records();
    },
    get keys() {
      return keys;
    },
    get published() {
      return published;
    },
    get unavailable() {
      return unavailable();
    },
    get isPublished() {
      const isBehind = target !== undefined && document !== undefined && isTargetBehind(document, target.name);
      return failures.length === 0 && !isBehind;
    },
    get isShort() {
      return isShort;
    },
    async subscribe(subscriber) {
      if (document === undefined) accepted.set(subscriber, "");
      else await update(subscriber, isShort);
    },
    shorten: () => updateAll(true),

    async adopt(next, confirmed) {
      const before = document;
      const isNew = before?.commits.at(-1) !== next.commits.at(-1) || before === undefined;
      const opening =
        isNew || !isOpen || keys.unavailable.size > 0 ? keyring.open(next.records) : Promise.resolve(keys);
      // An HSM that hangs must not keep a revoked key in the set, or keep this process from adopting other processes'
      // changes.
      isOpen = false;
      if (!(await isSoon(opening))) await publish(next, keyring.opened(next.records), confirmed);
      const opened = await opening;
      isOpen = true;
      await publish(next, opened, confirmed);
      if (!isNew) return;
      reportChanges(before, next);
      // Reported now, so that an operator has time to fix the key before it must sign.
      for (const [kid, error] of opened.unavailable) reportUnavailable(kid, error);
    },

    check() {
      if (failures.length > 0) throw failures[0];
      const error = unavailable();
      if (error !== undefined) throw error;
    },
  };
}

function withoutPrivateHalf(record: KeyRecord): PublicRecord {
  if (!isLive(record)) return record;
  const { privateHalf: _, ...rest }: LiveRecord = record;
  return rest;
}

const withoutNumber = ({ number: _number, ...event }: StoredEvent): AuditEvent => event;
