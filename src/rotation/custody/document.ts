import { StoreError } from "../../base/errors.ts";
import { isDate } from "../../base/format.ts";
import { jsonOf } from "../../base/json.ts";
import {
  type AuditEvent,
  type KeyRecord,
  type LiveRecord,
  checkRecords,
  isDecommissioned,
  mapLive,
} from "../rules/key-records.ts";
import { type RotationPolicy, policyDefaults, policyNames } from "../rules/policy.ts";
import type { TargetRecord } from "../rules/waits.ts";
import type { Owner } from "./issuer-check.ts";

/** An event, and its number in the audit log. Numbers start at 1. */
export interface StoredEvent extends AuditEvent {
  readonly number: number;
}

/** Everything that a store contains for one issuer. Plain JSON; the register stores it with a MAC. */
export interface StoreDocument {
  /**
   * Version of the format. jwksd rejects unknown formats but preserves unknown members. Format 2 means that the issuer
   * has been decommissioned.
   */
  readonly format: 1 | 2;
  /** Number of commits. */
  readonly revision: number;
  readonly owner: Owner;
  readonly policy: RotationPolicy;
  /** Records in the order in which they were added. */
  readonly records: readonly KeyRecord[];
  readonly targets: readonly TargetRecord[];
  /** Latest events, oldest first: up to 16 KiB, or as many as fit into the register alongside the keys. */
  readonly events: readonly StoredEvent[];
  /** Ids of the latest 32 commits, most recent last. They distinguish histories with the same revision numbers. */
  readonly commits: readonly string[];
}

const maxEventsBytes = 16_384;
/** Maximum size of the MAC that precedes a document, in bytes. */
const sealBytes = 512;
const maxCommits = 32;

/** Members that a commit may replace. */
export interface DocumentChange extends Partial<Pick<StoreDocument, "owner" | "policy" | "records" | "targets">> {
  /** Events to append to the audit log. */
  readonly events?: readonly AuditEvent[];
}

/** Creates the document that a store has before its first commit. */
export function emptyDocument(owner: Owner, policy: RotationPolicy): StoreDocument {
  return { format: 1, revision: 0, owner, policy, records: [], targets: [], events: [], commits: [] };
}

/**
 * Returns the document after a commit. Adds the revision to each record that enters a new state with this commit.
 *
 * @param maxBytes capacity of the register; old events are dropped to stay within this limit, so events never make a
 * commit fail
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
  const withRevision = (record: LiveRecord): LiveRecord =>
    stateOf.get(record.kid) === record.state ? record : { ...record, stateRevision: revision };
  const last = before.events.at(-1)?.number ?? 0;
  const numbered = added.map((event, index): StoredEvent => Object.assign({ number: last + index + 1 }, event));
  const next: StoreDocument = {
    ...before,
    ...replaced,
    format: isDecommissioned(records) ? 2 : 1,
    revision,
    records: mapLive(records, withRevision),
    events: [],
    commits: [...before.commits, commit].slice(-maxCommits),
  };
  const room = Math.min(maxEventsBytes, maxBytes - sealBytes - textBytes(JSON.stringify(next)));
  return { ...next, events: latestEvents([...before.events, ...numbered], room) };
}

function latestEvents(events: readonly StoredEvent[], maxBytes: number): readonly StoredEvent[] {
  let bytes = 0;
  const kept: StoredEvent[] = [];
  for (const event of events.toReversed()) {
    bytes += textBytes(JSON.stringify(event)) + 1;
    if (bytes > maxBytes) break;
    kept.unshift(event);
  }
  return kept;
}

/** Returns the length of a string in bytes of UTF-8. */
export const textBytes = (text: string): number => new TextEncoder().encode(text).length;

/**
 * Parses a document from any source.
 *
 * @throws StoreError `ERR_STORE_FORMAT`, `ERR_RECORDS_INVALID`
 */
export function parseDocument(text: string): StoreDocument {
  const found = jsonOf(text) as { readonly format?: unknown } | null | undefined;
  const format = typeof found === "object" ? found?.format : undefined;
  if (typeof format !== "number") throw damaged();
  if (format !== 1 && format !== 2) {
    throw new StoreError(
      "ERR_STORE_FORMAT",
      `the store has format ${format}, but this version of jwksd reads only formats 1 and 2; update jwksd`,
    );
  }
  try {
    const document = found as StoreDocument;
    const lists = [document.records, document.targets, document.events, document.commits];
    const isWhole = Number.isSafeInteger(document.revision) && lists.every((list) => Array.isArray(list));
    if (!isWhole || typeof document.owner.issuer !== "string") throw damaged();
    checkRecords(document.records, format === 2);
    if (isDecommissioned(document.records) !== (format === 2)) throw damaged();
    if (![...document.events, ...document.targets].every(isPrintable)) throw damaged();
    // A later version of jwksd may have different limits and additional durations.
    const policy = { ...policyDefaults, ...document.policy };
    if (!policyNames.every((name) => Number.isFinite(policy[name]))) throw damaged();
    return { ...document, policy };
  } catch (error) {
    throw error instanceof StoreError ? error : damaged();
  }
}

/**
 * Reports whether an event or a target can be printed, that is, whether its text members are strings and its time is
 * valid.
 */
function isPrintable(entry: StoredEvent | TargetRecord): boolean {
  const strings: readonly unknown[] =
    "name" in entry ? [entry.name] : [entry.type, entry.reason, entry.kid ?? "", entry.use ?? ""];
  return isDate(entry.at) && strings.every((value) => typeof value === "string");
}

const damaged = (): StoreError =>
  new StoreError("ERR_RECORDS_INVALID", "the stored document is damaged; restore the store from a backup");
