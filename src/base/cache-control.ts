/**
 * The JWK Set's Cache-Control value in each cache mode. Rotation periods are derived from these values.
 *
 * @see RFC 9111 section 5.2.2; RFC 5861 section 3
 */
export const cacheControl = {
  long: "public, max-age=3600, stale-while-revalidate=3600",
  rotation: "public, max-age=300, must-revalidate",
} as const;

export type CacheMode = keyof typeof cacheControl;

/**
 * Parses Cache-Control. Maps each directive's lower-case name to its value in seconds, or to `undefined` if it has no
 * valid number of seconds. If a directive is repeated, the first one applies, because every cache either uses that one
 * or treats the response as stale.
 *
 * @see RFC 9111 sections 4.2.1 and 5.2
 */
export function parseCacheControl(value: string): ReadonlyMap<string, number | undefined> {
  const directives = new Map<string, number | undefined>();
  const directive = /([!#$%&'*+\-.^_`|~\w]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?/g;
  for (const [, name = "", quoted, token] of value.matchAll(directive)) {
    const key = name.toLowerCase();
    if (!directives.has(key)) directives.set(key, deltaSeconds(quoted ?? token));
  }
  return directives;
}

/**
 * Returns the limits, in seconds, that a Cache-Control value sets on how long any cache may use a response. `maxAge` is
 * the longer of `max-age` and `s-maxage`.
 *
 * @see RFC 9111 section 5.2.2; RFC 5861 section 3
 */
export function cacheDirectives(cacheControl: string) {
  const directives = parseCacheControl(cacheControl);
  const ages = ["max-age", "s-maxage"].flatMap((name) => directives.get(name) ?? []);
  return {
    noStore: directives.has("no-store"),
    noCache: directives.has("no-cache"),
    maxAge: ages.length === 0 ? undefined : Math.max(...ages),
    whileRevalidated: directives.has("must-revalidate") ? 0 : (directives.get("stale-while-revalidate") ?? 0),
  };
}

/**
 * Returns how long a response has been in caches, in seconds, according to the first member of its `Age` field.
 *
 * @see RFC 9111 section 5.1
 */
export function ageSeconds(age: string = ""): number {
  const [first = ""] = age.split(",");
  return deltaSeconds(first.trim()) ?? 0;
}

/** Parses a number of seconds. Returns 2^31 for larger numbers. @see RFC 9111 section 1.2.2 */
export function deltaSeconds(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Math.min(Number(text), 2 ** 31) : undefined;
}

/**
 * Parses an HTTP date. Returns milliseconds since the epoch, or `undefined` for any other format or time zone.
 *
 * @see RFC 9110 section 5.6.7; RFC 9111 section 4.2
 */
export function httpDate(text: string = ""): number | undefined {
  const asctime = /^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}$/;
  const zoned = asctime.test(text) ? `${text} GMT` : text;
  const ms = /^[a-z]{3,9},? [^,]* (GMT|UTC)$/i.test(zoned) ? Date.parse(zoned) : NaN;
  return Number.isNaN(ms) ? undefined : ms;
}
