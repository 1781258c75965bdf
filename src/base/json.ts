/** The value of a JSON text; `undefined` for what is none. No error can quote the text. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a member of an object is there. Some serializers write `null`, `""` or `[]` for one that is not. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0);
}
