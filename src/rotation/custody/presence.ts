import { jsonOf } from "../../base/json.ts";
import { longestStale } from "../rules/waits.ts";
import type { Presence, PresenceList, StoreCall } from "../store/register.ts";
import type { StoreDocument } from "./document.ts";

/** What a living process says of itself. Anybody who can write the store can write a line, so it decides nothing. */
export interface PresenceRecord {
  /** Another one for each start. */
  readonly id: string;
  /** How people call the process. */
  readonly name: string;
  /** The version of jwksd, where the process says it. */
  readonly version?: string | undefined;
  /** The newest revision that it publishes everywhere; 0 before its first. */
  readonly revision: number;
  /** The id of the commit that made that revision: a store that was put back counts the same numbers again. */
  readonly commit?: string | undefined;
  /** The kid with which it signs; missing where it signs with none. */
  readonly kid?: string | undefined;
  /** Whether it signs while it may. */
  readonly signs: boolean;
  /** The ids of its wrapping keys. */
  readonly wrappingKeys: readonly string[];
  /** When it wrote the line, in epoch milliseconds by the clock of the store. */
  readonly at: number;
}

/** What the presence records of a store say of its processes. */
export interface Processes {
  /** Those that may serve or sign now, the one that has been silent for longest first. */
  readonly processes: readonly PresenceRecord[];
  /** Number of presence records that were not read: because there are too many, or because they are not such records. */
  readonly unread: number;
}

/** More records would block a process that shows them, and one of them is a process that runs. */
const maxRead = 500;
const maxLength = 4_096;

export const lineText = ({ id: _id, ...line }: PresenceRecord): string => JSON.stringify(line);

/** Lists the presence records of a store: none if its register has none. */
export const listPresence = async (presence: Presence | undefined, options?: StoreCall): Promise<PresenceList> =>
  (await presence?.list(maxRead, options)) ?? { records: new Map(), count: 0 };

/** The records that can be read, oldest first. */
export function readPresence({ records }: PresenceList): PresenceRecord[] {
  const lines = [...records].flatMap(([id, text]) => {
    const line = text.length > maxLength ? undefined : (jsonOf(text) as Partial<PresenceRecord> | undefined);
    return isLine(line) ? [{ ...line, id }] : [];
  });
  return lines.sort((a, b) => a.at - b.at);
}

function isLine(line: Partial<PresenceRecord> | null | undefined): line is PresenceRecord {
  if (typeof line !== "object" || line === null) return false;
  const { name, revision, kid = "", version = "", commit = "", signs, wrappingKeys, at } = line;
  const texts: readonly unknown[] = [name, kid, version, commit];
  return (
    texts.every((text) => typeof text === "string") &&
    typeof signs === "boolean" &&
    Number.isSafeInteger(revision) &&
    Number.isFinite(at) &&
    Array.isArray(wrappingKeys)
  );
}

/** The processes that may serve or sign now: one that writes no record for `maxStaleSeconds`, by the longest policy, does neither. */
export function livePresence(
  list: PresenceList,
  now: number,
  { records, policy }: Pick<StoreDocument, "records" | "policy">,
): Processes {
  const staleMs = longestStale(records, policy).maxStaleSeconds * 1000;
  const read = readPresence(list);
  return { processes: read.filter(({ at }) => Math.abs(now - at) < staleMs), unread: list.count - read.length };
}

/**
 * By how many revisions a process is behind the store; `undefined` where the store no longer has what the process publishes, because an older
 * copy was restored. Such a process refuses the store.
 */
export function revisionsBehind(
  { revision, commit }: PresenceRecord,
  document: Pick<StoreDocument, "revision" | "commits">,
): number | undefined {
  const behind = document.revision - revision;
  const isKnown = commit === undefined || document.commits.includes(commit) || behind >= document.commits.length;
  return isKnown && behind >= 0 ? behind : undefined;
}
