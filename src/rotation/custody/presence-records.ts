import { jsonOf } from "../../base/json.ts";
import { shortened } from "../../base/printable.ts";
import { longestStale } from "../rules/waits.ts";
import type { PresenceStore, PresenceList, CallOptions } from "../store/register.ts";
import type { StoreDocument } from "./document.ts";

/**
 * A process's entry in the store. No decision depends on it, because anyone who can write to the store can forge it.
 */
export interface PresenceRecord {
  /** Id of the process; a new one is generated each time the process starts. */
  readonly id: string;
  /** Human-readable name of the process. */
  readonly name: string;
  /** The process's jwksd version, if the process reports it. */
  readonly version?: string | undefined;
  /** Latest revision that the process publishes everywhere; 0 if it has not published any. */
  readonly revision: number;
  /** Id of that revision's commit. The number alone is ambiguous, because a restored store reuses revision numbers. */
  readonly commit?: string | undefined;
  /** Kid of the key that the process signs with; missing if it does not sign. */
  readonly kid?: string | undefined;
  /** Whether the process is set up to sign. */
  readonly signs: boolean;
  /** Ids of the process's wrapping keys. */
  readonly wrappingKeys: readonly string[];
  /** Time at which the process wrote the record, in epoch milliseconds by the store's clock. */
  readonly at: number;
}

/** The processes that use a store, according to its presence records. */
export interface Processes {
  /** Processes that may currently serve or sign, oldest record first. */
  readonly processes: readonly PresenceRecord[];
  /** Number of presence records that were not read because there are too many of them or because they are invalid. */
  readonly unread: number;
}

/** Maximum number of records to read. Reading more would block the calling process. */
const maxRead = 500;
const maxLength = 4_096;

export const presenceText = ({ id: _id, ...members }: PresenceRecord): string => JSON.stringify(members);

/** Lists a store's presence records. The list is empty if the register keeps none. */
export const listPresence = async (presence: PresenceStore | undefined, options?: CallOptions): Promise<PresenceList> =>
  (await presence?.list(maxRead, options)) ?? { records: new Map(), count: 0 };

/** Returns the valid records, oldest first. */
export function readPresence({ records }: PresenceList): PresenceRecord[] {
  const read = [...records].flatMap(([id, text]) => {
    const parsed = text.length > maxLength ? undefined : (jsonOf(text) as Partial<PresenceRecord> | undefined);
    return isPresenceRecord(parsed) ? [{ ...parsed, id, name: shortened(parsed.name) }] : [];
  });
  return read.sort((a, b) => a.at - b.at);
}

function isPresenceRecord(parsed: Partial<PresenceRecord> | null | undefined): parsed is PresenceRecord {
  if (typeof parsed !== "object" || parsed === null) return false;
  const { name, revision, kid = "", version = "", commit = "", signs, wrappingKeys, at } = parsed;
  const strings: readonly unknown[] = [name, kid, version, commit];
  return (
    strings.every((value) => typeof value === "string") &&
    typeof signs === "boolean" &&
    Number.isSafeInteger(revision) &&
    Number.isFinite(at) &&
    Array.isArray(wrappingKeys)
  );
}

/**
 * Returns the processes that may currently serve or sign. A process does neither once its record is older than the
 * longest `maxStaleSeconds` of all policies that may still apply.
 */
export function livePresence(
  list: PresenceList,
  now: number,
  { records, policy }: Pick<StoreDocument, "records" | "policy">,
): Processes {
  const staleMs = longestStale(records, policy).maxStaleSeconds * 1000;
  const read = readPresence(list);
  return {
    processes: read.filter(({ at }) => Math.abs(now - at) < staleMs),
    unread: Math.max(list.count - read.length, 0),
  };
}

/**
 * Returns how many revisions a process is behind the store, or `undefined` if the store no longer has the revision that
 * the process publishes, because an older backup was restored. In that case, the process refuses to use the store.
 */
export function revisionsBehind(
  { revision, commit }: PresenceRecord,
  document: Pick<StoreDocument, "revision" | "commits">,
): number | undefined {
  const behind = document.revision - revision;
  const isKnown = commit === undefined || document.commits.includes(commit) || behind >= document.commits.length;
  return isKnown && behind >= 0 ? behind : undefined;
}
