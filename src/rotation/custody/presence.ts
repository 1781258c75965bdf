import { jsonOf } from "../../base/json.ts";
import type { StoreDocument } from "./document.ts";
import { longestStale } from "../rules/waits.ts";

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

/** For how long people may want to know of a process that has ended. */
const keptMs = 86_400_000;

export const lineText = ({ id: _id, ...line }: PresenceRecord): string => JSON.stringify(line);

/** The lines that are lines, oldest first. */
export function readPresence(texts: ReadonlyMap<string, string>): PresenceRecord[] {
  const lines = [...texts].flatMap(([id, text]) => {
    const line = jsonOf(text.slice(0, 4_096)) as Partial<PresenceRecord> | undefined;
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

/** Lines of processes that ended long ago, as where one is killed and started again and again. */
export const deadLines = (lines: readonly PresenceRecord[], now: number): PresenceRecord[] =>
  lines.filter(({ at }) => now - at > keptMs);

/** The processes that may serve or sign now: whoever says nothing for `maxStaleSeconds` does neither. */
export function livePresence(
  lines: readonly PresenceRecord[],
  now: number,
  { records, policy }: Pick<StoreDocument, "records" | "policy">,
): PresenceRecord[] {
  const staleMs = longestStale(records, policy).maxStaleSeconds * 1000;
  return lines.filter(({ at }) => now - at < staleMs);
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
