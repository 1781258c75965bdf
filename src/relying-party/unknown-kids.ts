const negativeMs = 10_000;
const maxNegative = 1_000;
/** So that a thousand of them are small; kids are made up by whoever sends tokens. */
const maxRememberedKidLength = 1_024;

/** Whether it is known that a kid names no key. @param unknown kid to the moment from which that was known */
export function isUnknown(unknown: ReadonlyMap<string, number>, kid: string, now: number): boolean {
  const since = unknown.get(kid);
  return since !== undefined && since <= now && now < since + negativeMs;
}

/** Keeps that a kid names no key, at the cost of the kid that was kept for longest. */
export function rememberUnknown(unknown: Map<string, number>, kid: string, now: number): void {
  if (kid.length > maxRememberedKidLength) return;
  unknown.delete(kid);
  unknown.set(kid, now);
  if (unknown.size > maxNegative) unknown.delete(unknown.keys().next().value as string);
}
