import { deltaSeconds, httpDate } from "./header-values.ts";

/** The header fields of a response on which its freshness depends. */
export interface CachingHeaders {
  /** `Cache-Control`. */
  readonly cacheControl?: string | undefined;
  /** `Age`. */
  readonly age?: string | undefined;
  /** `Date`. */
  readonly date?: string | undefined;
  /** `Expires`. */
  readonly expires?: string | undefined;
}

/** Bounds for what servers send, in seconds. */
export interface FreshnessBounds {
  /** A response counts as fresh for at least this long, whatever its headers say. */
  readonly minFreshSeconds: number;
  /** Cap of `max-age` and `Expires`. */
  readonly maxFreshSeconds: number;
  /** For responses without `max-age` and `Expires`. */
  readonly defaultFreshSeconds: number;
  /** Cap of `stale-while-revalidate`. */
  readonly maxStaleSeconds: number;
  /** Cap of `stale-if-error`, and its default. */
  readonly outageToleranceSeconds: number;
}

/** Moments (epoch milliseconds) in the life of a response, each at or after the one before. */
export interface Freshness {
  /** When it was requested. */
  readonly since: number;
  /** From then on it is refreshed in the background, so that no call waits when it gets stale. */
  readonly refreshFrom: number;
  /** Until then it is used without a request. */
  readonly freshUntil: number;
  /** Until then it is used while one background request revalidates it. */
  readonly staleUntil: number;
  /** Until then it is used if revalidating fails. */
  readonly outageUntil: number;
}

export type Until = "freshUntil" | "staleUntil" | "outageUntil";

/** A response is fresh for at least this long where only its `Date` says that it is older: either clock may be wrong. */
const leastByDateMs = 60_000;
const refreshAheadMs = 60_000;

/**
 * Computes the freshness of a response in a private cache.
 *
 * Times count from the moment of the request, so the time on the way counts as age. The age is that of `Age`, or the time since
 * `Date` if that is longer (RFC 9111 section 4.2.3). Of a directive that is given twice, the smallest value counts; an invalid value
 * counts as 0 (section 4.2.1). `s-maxage` is for shared caches only.
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

/** Whether a response may be used now. The age of a response from the future is unknown, because the clock was set back: it may not. */
export function mayUse(response: Freshness, until: Until, nowMs: number): boolean {
  return response.since <= nowMs && nowMs < response[until];
}

/** Seconds by directive, in lower case; `0` for a directive without a number. */
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

/** How long caches on the way kept a response. Of a list, the first member counts. @see RFC 9111 section 5.1 */
export function ageSeconds({ age = "" }: CachingHeaders): number {
  const [first = ""] = age.split(",");
  return deltaSeconds(first.trim()) ?? 0;
}

/**
 * `Expires` minus `Date`, in seconds. An invalid `Expires`, such as `0`, means the past. Where `Date` is missing (browsers hide it from
 * other origins), the time of the request stands for it.
 *
 * @see RFC 9111 section 5.3; RFC 9110 section 6.6.1
 */
function expiresIn({ expires, date }: CachingHeaders, requestedAtMs: number): number | undefined {
  if (expires === undefined) return undefined;
  const end = httpDate(expires) ?? -Infinity;
  return Math.max((end - (httpDate(date) ?? requestedAtMs)) / 1000, 0);
}
