const longest = 60;

/** A value that a stranger chose, for a message: as JSON and not too long, a list or an object by its type. */
export function shown(value: unknown): string {
  if (typeof value === "string") {
    return JSON.stringify(value.length > longest ? `${value.slice(0, longest)}…` : value);
  }
  if (value === undefined) return "missing";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" && value !== null ? "an object" : JSON.stringify(value);
}

/** `one key`, `3 keys`. */
export const counted = (count: number, noun: string): string =>
  count === 1 ? `one ${noun}` : `${count.toLocaleString("en")} ${noun}s`;

/** A URL without what may be secret in it. */
export function shownUrl(url: string): string {
  if (!URL.canParse(url)) return shown(url);
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
