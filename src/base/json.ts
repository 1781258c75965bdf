/** The value of a JSON text; `undefined` for what is none. No error can quote the text. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a value of a JSON text is an integer beyond 2^53 - 1, which readers round, or a number that is too large for any. @param source as a reviver gets it */
export function isTooLarge(value: unknown, source = ""): boolean {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return false;
  return /^-?\d+$/.test(source) || !Number.isFinite(value);
}

/** Whether a member of an object is there. Some serializers write `null`, `""` or `[]` for one that is not. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0);
}
