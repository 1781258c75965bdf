/** Parses JSON. Returns `undefined` if the text is not JSON, instead of throwing an error that could quote it. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Reports whether a JSON value is an integer beyond 2^53 - 1, which parsers round, or too large for any number. @param source as a reviver receives it */
export function isTooLarge(value: unknown, source = ""): boolean {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return false;
  return /^-?\d+$/.test(source) || !Number.isFinite(value);
}

/** Reports whether a member of an object is present. Some serializers write `null`, `""` or `[]` for a missing member. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0);
}

/** Returns a member of an object, or `undefined` for any other value. */
export function memberOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? Reflect.get(value, name) : undefined;
}
