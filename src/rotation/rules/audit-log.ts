import type { StoredEvent } from "../store/store.ts";

/** The latest and, negated, the earliest moment of a `Date`. @see ECMA-262 section 21.4.1.1 */
const mostMs = 8.64e15;

/** Whether a row of the audit log is an event. No MAC covers the log: whoever can write the store can write any row into it. */
export function isEvent({ number, at, type, kid, use, reason }: StoredEvent): boolean {
  const texts: readonly unknown[] = [type, kid, use, reason];
  return Number.isSafeInteger(number) && Math.abs(at) <= mostMs && texts.every((text) => typeof text === "string");
}
