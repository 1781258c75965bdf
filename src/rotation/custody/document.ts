import { StoreError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { type RotationPolicy, policyDefaults, policyNames } from "../rules/policy.ts";
import { isDate } from "../../base/format.ts";
import { type KeyEvent, type KeyRecord, type LiveRecord, checkRecords, mapLive } from "../rules/records.ts";
import type { TargetRecord } from "../rules/waits.ts";
import type { Owner } from "./issuer-check.ts";

/** An event and its place in the audit log, counted from 1. */
export interface StoredEvent extends KeyEvent {
  readonly number: number;
}

/** All that a store holds of one issuer: what its register has as a text, under a MAC. Plain JSON. */
export interface StoreDocument {
  /** A version of jwksd reads the formats that it knows, and keeps members that it does not know. */
  readonly format: 1;
  /** Counts the commits. */
  readonly revision: number;
  readonly owner: Owner;
  readonly policy: RotationPolicy;
  /** In the order in which they were added. */
  readonly records: readonly KeyRecord[];
  readonly targets: readonly TargetRecord[];
  /** The newest events, oldest first: as many as 16 KiB hold, or what the keys leave of the register. */
  readonly events: readonly StoredEvent[];
  /** The ids of the newest 32 commits, the newest last. They tell two histories apart. */
  readonly commits: readonly string[];
}

const maxEventsBytes = 16_384;
/** Of the MAC around a document. */
const sealBytes = 512;
const maxCommits = 32;

/** What a commit may replace. */
export interface DocumentChange extends Partial<Pick<StoreDocument, "owner" | "policy" | "records" | "targets">> {
  /** To be added to the audit log. */
  readonly events?: readonly KeyEvent[];
}

/** A store before its first commit. */
export function emptyDocument(owner: Owner, policy: RotationPolicy): StoreDocument {
  return { format: 1, revision: 0, owner, policy, records: [], targets: [], events: [], commits: [] };
}

/**
 * The document after a commit. Notes the revision on each record whose state begins with it.
 *
 * @param maxBytes what the register can hold: old events make room, so that no change fails for them
 */
export function nextDocument(
  before: StoreDocument,
  change: DocumentChange,
  commit: string,
  maxBytes: number = Infinity,
): StoreDocument {
  const { events: added = [], records = before.records, ...replaced } = change;
  const revision = before.revision + 1;
  const stateOf = new Map(before.records.map(({ kid, state }) => [kid, state]));
  const begun = (record: LiveRecord): LiveRecord =>
    stateOf.get(record.kid) === record.state ? record : { ...record, stateRevision: revision };
  const last = before.events.at(-1)?.number ?? 0;
  const numbered = added.map((event, index): StoredEvent => Object.assign({ number: last + index + 1 }, event));
  const next = {
    ...before,
    ...replaced,
    revision,
    records: mapLive(records, begun),
    events: [],
    commits: [...before.commits, commit].slice(-maxCommits),
  };
  const room = Math.min(maxEventsBytes, maxBytes - sealBytes - textBytes(JSON.stringify(next)));
  return { ...next, events: newest([...before.events, ...numbered], room) };
}

function newest(events: readonly StoredEvent[], maxBytes: number): readonly StoredEvent[] {
  let bytes = 0;
  const kept: StoredEvent[] = [];
  for (const event of events.toReversed()) {
    bytes += textBytes(JSON.stringify(event)) + 1;
    if (bytes > maxBytes) break;
    kept.unshift(event);
  }
  return kept;
}

/** In UTF-8. */
export const textBytes = (text: string): number => new TextEncoder().encode(text).length;

/**
 * Reads the document of a text, which somebody else may have written.
 *
 * @throws StoreError `ERR_STORE_FORMAT`, `ERR_RECORDS_INVALID`
 */
export function parseDocument(text: string): StoreDocument {
  const found = jsonOf(text) as { readonly format?: unknown } | null | undefined;
  const format = typeof found === "object" ? found?.format : undefined;
  if (typeof format !== "number") throw damaged();
  if (format !== 1) {
    throw new StoreError(
      "ERR_STORE_FORMAT",
      `the store has format ${format}, and this jwksd knows format 1; update jwksd`,
    );
  }
  try {
    const document = found as StoreDocument;
    const lists = [document.records, document.targets, document.events, document.commits];
    const isWhole = Number.isSafeInteger(document.revision) && lists.every((list) => Array.isArray(list));
    if (!isWhole || typeof document.owner.issuer !== "string") throw damaged();
    checkRecords(document.records);
    if (![...document.events, ...document.targets].every(canBeShown)) throw damaged();
    // A later version may have other bounds, and another member.
    const policy = { ...policyDefaults, ...document.policy };
    if (!policyNames.every((name) => Number.isFinite(policy[name]))) throw damaged();
    return { ...document, policy };
  } catch (error) {
    throw error instanceof StoreError ? error : damaged();
  }
}

/** Whether people can be shown an event or a target: it has texts and a time. */
function canBeShown(entry: StoredEvent | TargetRecord): boolean {
  const texts: readonly unknown[] =
    "name" in entry ? [entry.name] : [entry.type, entry.reason, entry.kid ?? "", entry.use ?? ""];
  return isDate(entry.at) && texts.every((text) => typeof text === "string");
}

const damaged = (): StoreError =>
  new StoreError("ERR_RECORDS_INVALID", "the text of the store is damaged; restore the store from a backup");
