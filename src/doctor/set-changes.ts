import type { State } from "./set-states.ts";
import { counted, quoted } from "./value-text.ts";

/** An event on a timeline. */
export interface TimelineEvent {
  /** Time of the event, in epoch milliseconds. */
  readonly at: number;
  /** Description of the event. It may quote the issuer, so escape it before you print it. */
  readonly text: string;
}

/** Describes the changes between two states or, if there is only one, that state. */
export function changes(before: State | undefined, after: State): string[] {
  if (after.keys === undefined)
    return before?.problem === after.problem && before !== undefined ? [] : [problemText(after)];
  if (before === undefined) return [`${counted(after.keys.size, "key")}: ${kidsText(after.keys)}`, cachingText(after)];
  if (before.keys === undefined) return [`the set is back, with ${counted(after.keys.size, "key")}`];
  const lines: string[] = [];
  for (const kid of after.keys.keys()) if (!before.keys.has(kid)) lines.push(`key added: kid ${quoted(kid)}`);
  for (const [kid, thumbprint] of before.keys) {
    if (!after.keys.has(kid)) lines.push(`key withdrawn: kid ${quoted(kid)}`);
    else if (after.keys.get(kid) !== thumbprint) lines.push(`kid ${quoted(kid)} now identifies a different key`);
  }
  if (lines.length === 0 && before.content !== after.content)
    lines.push("the document has changed, but its keys have not");
  if (before.content === after.content && before.etag !== after.etag)
    lines.push("the ETag has changed, but the set has not");
  if (before.servedSeconds !== after.servedSeconds) lines.push(cachingText(after));
  return lines;
}

const problemText = ({ problem }: State): string => `no set: ${problem ?? "the response is not a JWK Set"}`;
const cachingText = ({ servedSeconds }: State): string => `caches may serve this set for ${servedSeconds} s`;
const maxKids = 10;

function kidsText(keys: NonNullable<State["keys"]>): string {
  const kids = [...keys.keys()].slice(0, maxKids).map(quoted);
  return [...kids, ...(keys.size > maxKids ? ["…"] : [])].join(", ");
}
