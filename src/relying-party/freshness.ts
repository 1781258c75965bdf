/** The header fields of a response on which its freshness depends. */
export interface CachingHeaders {
  readonly cacheControl?: string | undefined;
  readonly age?: string | undefined;
  readonly date?: string | undefined;
  readonly expires?: string | undefined;
}

/** Bounds for what servers say, in seconds. */
export interface FreshnessBounds {
  /** A response counts as fresh for at least so long, whatever it says. */
  readonly minFreshSeconds: number;
  readonly maxFreshSeconds: number;
  /** For servers that say nothing. */
  readonly defaultFreshSeconds: number;
  /** Cap of `stale-while-revalidate`. */
  readonly maxStaleSeconds: number;
  /** Cap of `stale-if-error`, and its value for servers that say nothing. */
  readonly maxStaleIfErrorSeconds: number;
}

/** Until when (epoch milliseconds) a response may be used, and how. Each moment is at or after the one before. */
export interface Freshness {
  /** When it was requested. */
  readonly since: number;
  /** As it is. */
  readonly freshUntil: number;
  /** While one background request revalidates it. */
  readonly staleUntil: number;
  /** If revalidating fails by a transport error or a 5xx. */
  readonly ifErrorUntil: number;
}

/**
 * Works out the freshness of a response for a private cache.
 *
 * Counted from the moment of the request, so that the time on the way counts as age (RFC 9111 section 4.2.3). Of directives given
 * twice the smallest value counts, an invalid one counts as 0 (section 4.2.1). `s-maxage` is for shared caches only.
 *
 * @see RFC 9111 sections 4.2 and 5.2.2; RFC 5861
 */
export function freshness(headers: CachingHeaders, requestedAtMs: number, bounds: FreshnessBounds): Freshness {
  const directives = parseCacheControl(headers.cacheControl ?? "");
  const noReuse = directives.has("no-store") || directives.has("no-cache");
  const lifetime = noReuse
    ? 0
    : (directives.get("max-age") ?? expiresIn(headers, requestedAtMs) ?? bounds.defaultFreshSeconds);
  const remaining = lifetime - ageSeconds(headers);
  const mustRevalidate = noReuse || directives.has("must-revalidate");
  const stale = mustRevalidate ? 0 : Math.min(directives.get("stale-while-revalidate") ?? 0, bounds.maxStaleSeconds);
  const ifError = mustRevalidate
    ? 0
    : Math.min(directives.get("stale-if-error") ?? Infinity, bounds.maxStaleIfErrorSeconds);

  const capped = Math.min(remaining, bounds.maxFreshSeconds);
  const at = (seconds: number): number => requestedAtMs + Math.max(seconds, bounds.minFreshSeconds) * 1000;
  const freshUntil = at(capped);
  const staleUntil = at(capped + stale);
  return { since: requestedAtMs, freshUntil, staleUntil, ifErrorUntil: Math.max(staleUntil, at(capped + ifError)) };
}

/** Whether a response may be used in this way. One from the future is of a clock that was set back: its age is not known. */
export function mayUse(response: Freshness, until: Exclude<keyof Freshness, "since">, nowMs: number): boolean {
  return response.since <= nowMs && nowMs < response[until];
}

/** Directives by name in lower case; those without a number have `0`. */
function parseCacheControl(value: string): Map<string, number> {
  const directives = new Map<string, number>();
  const directive = /([!#$%&'*+\-.^_`|~\w]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?/g;
  for (const [, name = "", quoted, token] of value.matchAll(directive)) {
    const key = name.toLowerCase();
    const seconds = deltaSeconds(quoted ?? token) ?? 0;
    directives.set(key, Math.min(seconds, directives.get(key) ?? Infinity));
  }
  return directives;
}

/** @see RFC 9111 section 1.2.2 (2^31 stands for more than that) */
function deltaSeconds(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Math.min(Number(text), 2 ** 31) : undefined;
}

/** How long caches on the way had kept a response; of a list the first member counts. @see RFC 9111 section 5.1 */
export function ageSeconds({ age = "" }: CachingHeaders): number {
  const [first = ""] = age.split(",");
  return deltaSeconds(first.trim()) ?? 0;
}

/**
 * `Expires` less `Date`; an invalid `Expires`, such as `0`, is in the past. A response without a valid `Date`, which browsers hide
 * from pages of another origin, has that of its arrival.
 *
 * @see RFC 9111 section 5.3; RFC 9110 section 6.6.1
 */
function expiresIn({ expires, date = "" }: CachingHeaders, requestedAtMs: number): number | undefined {
  if (expires === undefined) return undefined;
  const end = httpDate(expires) ?? -Infinity;
  return Math.max((end - (httpDate(date) ?? requestedAtMs)) / 1000, 0);
}

/** Milliseconds since the epoch; other formats and zones are invalid. @see RFC 9110 section 5.6.7; RFC 9111 section 4.2 */
function httpDate(text: string): number | undefined {
  const asctime = /^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}$/;
  const zoned = asctime.test(text) ? `${text} GMT` : text;
  const ms = /^[a-z]{3,9},? [^,]* (GMT|UTC)$/i.test(zoned) ? Date.parse(zoned) : NaN;
  return Number.isNaN(ms) ? undefined : ms;
}
