import { deltaSeconds, httpDate } from "./header-values.ts";

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
  readonly outageToleranceSeconds: number;
}

/** Moments (epoch milliseconds) in the life of a response, each at or after the one before. */
export interface Freshness {
  /** When it was requested. */
  readonly since: number;
  /** From when on it is asked for anew, so that nobody waits when it becomes stale. */
  readonly refreshFrom: number;
  /** Until when it may be used as it is. */
  readonly freshUntil: number;
  /** Until when it may be used while one background request revalidates it. */
  readonly staleUntil: number;
  /** Until when it may be used if it cannot be had anew. */
  readonly outageUntil: number;
}

export type Until = "freshUntil" | "staleUntil" | "outageUntil";

/** A response that is old by `Date` alone is fresh for at least so long, because one of the two clocks may be wrong. */
const leastByDateMs = 60_000;
const refreshAheadMs = 60_000;

/**
 * Works out the freshness of a response for a private cache.
 *
 * Counted from the moment of the request, so that the time on the way counts as age. The age is what `Age` says, or the time since
 * `Date` if that is more (RFC 9111 section 4.2.3). Of directives given twice the smallest value counts, an invalid one counts as 0
 * (section 4.2.1). `s-maxage` is for shared caches only.
 *
 * @see RFC 9111 sections 4.2 and 5.2.2; RFC 5861
 */
export function freshness(headers: CachingHeaders, requestedAtMs: number, bounds: FreshnessBounds): Freshness {
  const directives = parseCacheControl(headers.cacheControl ?? "");
  const noReuse = directives.has("no-store") || directives.has("no-cache");
  const lifetime = noReuse
    ? 0
    : (directives.get("max-age") ?? expiresIn(headers, requestedAtMs) ?? bounds.defaultFreshSeconds);
  const ageMs = ageSeconds(headers) * 1000;
  const ageByDateMs = requestedAtMs - (httpDate(headers.date) ?? requestedAtMs);
  const freshMs = (ageMs: number): number => Math.min(lifetime * 1000 - ageMs, bounds.maxFreshSeconds * 1000);
  const leastMs = Math.max(Math.min(freshMs(ageMs), leastByDateMs), bounds.minFreshSeconds * 1000);
  const remainingMs = freshMs(Math.max(ageMs, ageByDateMs));
  const until = (staleSeconds: number): number => requestedAtMs + Math.max(remainingMs + staleSeconds * 1000, leastMs);

  const mustRevalidate = noReuse || directives.has("must-revalidate");
  const stale = mustRevalidate ? 0 : Math.min(directives.get("stale-while-revalidate") ?? 0, bounds.maxStaleSeconds);
  const outage = mustRevalidate
    ? 0
    : Math.min(directives.get("stale-if-error") ?? Infinity, bounds.outageToleranceSeconds);
  const freshUntil = until(0);
  return {
    since: requestedAtMs,
    refreshFrom: freshUntil - Math.min((freshUntil - requestedAtMs) / 5, refreshAheadMs),
    freshUntil,
    staleUntil: until(stale),
    outageUntil: until(Math.max(stale, outage)),
  };
}

/** Whether a response may be used in this way. One from the future is of a clock that was set back: its age is not known. */
export function mayUse(response: Freshness, until: Until, nowMs: number): boolean {
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
function expiresIn({ expires, date }: CachingHeaders, requestedAtMs: number): number | undefined {
  if (expires === undefined) return undefined;
  const end = httpDate(expires) ?? -Infinity;
  return Math.max((end - (httpDate(date) ?? requestedAtMs)) / 1000, 0);
}
