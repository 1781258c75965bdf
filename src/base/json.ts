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

/** One text for one value, whatever the order of its members. @see RFC 8785 */
export function canonicalJson(value: unknown): string {
  // JSON text may hold numbers that are too large for one; they must not pass for null.
  if (typeof value === "number") return String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  // By code unit, so that every machine agrees.
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(",")}}`;
}
