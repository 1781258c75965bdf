import { escapedUnit, shortened } from "./printable.ts";

/**
 * Formats a time for human readers, in UTC, truncated to seconds. The date and time match the beginning of the value in
 * JSON output.
 */
export function timeText(epochMs: number): string {
  if (!Number.isFinite(epochMs)) return "never";
  return `${new Date(epochMs).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

const units = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
] as const;

/**
 * Formats a duration in its two largest units, rounded: "89 d 23 h", "5 min", "0 s". A duration just under 90 days
 * becomes "90 d".
 */
export function durationText(ms: number): string {
  const seconds = Math.round(Math.abs(ms) / 1000);
  const largest = units.findIndex(([, size]) => seconds >= size);
  const [, least] = units[Math.min(largest + 1, units.length - 1)] ?? units[3];
  let left = Math.round(seconds / least) * least;
  const parts = units.flatMap(([name, size]) => {
    const count = Math.floor(left / size);
    left -= count * size;
    return count === 0 ? [] : [`${count} ${name}`];
  });
  return parts.length === 0 ? "0 s" : parts.join(" ");
}

/** Formats a time relative to now: "in 3 d", "2 h ago" or "now". */
export function relativeText(epochMs: number, now: number): string {
  if (Math.abs(epochMs - now) < 500) return "now";
  return epochMs > now ? `in ${durationText(epochMs - now)}` : `${durationText(now - epochMs)} ago`;
}

/**
 * Escapes everything in a kid except printable ASCII, so that every character is displayed in a terminal or picture,
 * and none is interpreted.
 */
export function kidText(kid: string): string {
  return shortened(kid).replaceAll(/[^ -~]/g, escapedUnit);
}

/** Maximum number of items that a message lists by name. */
export const maxNamed = 5;

/** Lists the first few items by name: "a, b, c, d, e, 95 more". */
export function someOf<T>(things: readonly T[], name: (thing: T) => string): string {
  const more = things.length > maxNamed ? [`${things.length - maxNamed} more`] : [];
  return [...things.slice(0, maxNamed).map(name), ...more].join(", ");
}

/** Reports whether a time is within the range of `Date`. */
export function isDate(epochMs: unknown): boolean {
  return typeof epochMs === "number" && Math.abs(epochMs) <= 8.64e15;
}
