/** Parses JSON. Returns `undefined` for invalid JSON instead of throwing an error, which could quote the input. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Reports whether a JSON number is out of range, or is an integer above 2^53 - 1, which a parser would round.
 * @param source the number's source text, as passed to a reviver
 */
export function isTooLarge(value: unknown, source = ""): boolean {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return false;
  return /^-?\d+$/.test(source) || !Number.isFinite(value);
}

/** Reports whether an object member has a value. Some serializers write `null`, `""` or `[]` for a missing member. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0);
}

/** Returns a member of an object, or `undefined` if the value is not an object. */
export function memberOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? Reflect.get(value, name) : undefined;
}
