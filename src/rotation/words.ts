/** A moment as people read it, in UTC. Rounded up to a second, so that "until" and "from ... on" stay true. */
export function timeText(epochMs: number): string {
  if (!Number.isFinite(epochMs)) return "never";
  return `${new Date(Math.ceil(epochMs / 1000) * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

const units = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
] as const;

/** A duration by its two largest units: "89 d 23 h", "5 min", "0 s". */
export function durationText(ms: number): string {
  const seconds = Math.round(Math.abs(ms) / 1000);
  const index = Math.max(
    0,
    units.findIndex(([, size]) => seconds >= size),
  );
  if (seconds === 0) return "0 s";
  const parts = units.slice(index, index + 2).map(([name, size], place) => {
    const [, above] = units[index + place - 1] ?? [];
    const count = Math.floor((place === 0 || above === undefined ? seconds : seconds % above) / size);
    return { name, count };
  });
  return parts
    .filter(({ count }) => count > 0)
    .map(({ name, count }) => `${count} ${name}`)
    .join(" ");
}

/** "in 3 d", "2 h ago" or "now". */
export function relativeText(epochMs: number, now: number): string {
  if (Math.abs(epochMs - now) < 500) return "now";
  return epochMs > now ? `in ${durationText(epochMs - now)}` : `${durationText(now - epochMs)} ago`;
}

/** A kid, of which a terminal or a picture shows every character and obeys none: what is not printable ASCII is escaped. */
export function kidText(kid: string): string {
  return kid.replaceAll(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
