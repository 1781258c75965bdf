import { ageSeconds, httpDate, parseCacheControl } from "../../base/cache-control.ts";

/** Header fields that determine a response's freshness. */
export interface CachingHeaders {
  /** `Cache-Control` header. */
  readonly cacheControl?: string | undefined;
  /** `Age` header. */
  readonly age?: string | undefined;
  /** `Date` header. */
  readonly date?: string | undefined;
  /** `Expires` header. */
  readonly expires?: string | undefined;
}

/** Bounds on the values that servers send, in seconds. */
export interface FreshnessBounds {
  /** Minimum time for which a response is fresh, regardless of its headers. */
  readonly minFreshSeconds: number;
  /** Maximum for `max-age` and `Expires`. */
  readonly maxFreshSeconds: number;
  /** How long a response that has neither `max-age` nor `Expires` is fresh. */
  readonly defaultFreshSeconds: number;
  /** Maximum for `stale-while-revalidate`. */
  readonly maxStaleSeconds: number;
  /** Maximum and default for `stale-if-error`. */
  readonly outageToleranceSeconds: number;
}

/** Times in the life of a response, in epoch milliseconds, in chronological order. */
export interface Freshness {
  /** Time of the request. */
  readonly since: number;
  /** Time at which background refreshes of the response begin, so that calls need not wait when it becomes stale. */
  readonly refreshFrom: number;
  /** End of the period in which the response is used without a request. */
  readonly freshUntil: number;
  /** End of the period in which the response is used while one background request revalidates it. */
  readonly staleUntil: number;
  /** End of the period in which the response is used if revalidation fails. */
  readonly outageUntil: number;
}

export type Until = "freshUntil" | "staleUntil" | "outageUntil";

/**
 * Maximum clock difference to allow for, in milliseconds. A `Date` that is off by no more than this does not prove a
 * response's age.
 */
export const clockToleranceMs = 60_000;
const refreshAheadMs = 60_000;

/**
 * Computes a response's freshness in a private cache.
 *
 * Times are measured from the request, so time in transit counts as age. The age is `Age`, or the time since `Date` if
 * that is longer (RFC 9111 section 4.2.3). If a directive's value is invalid, it is treated as 0 (section 4.2.1).
 * `s-maxage` is ignored, because it applies only to shared caches.
 *
 * @see RFC 9111 sections 4.2 and 5.2.2; RFC 5861
 */
export function freshness(headers: CachingHeaders, requestedAtMs: number, bounds: FreshnessBounds): Freshness {
  const { has, seconds, noReuse, lifetimeMs } = lifetimeOf(headers, requestedAtMs, bounds);
  const ageMs = ageSeconds(headers.age) * 1000;
  const ageByDateMs = dateAgeMs(headers, requestedAtMs);
  const freshMs = (ageMs: number): number => Math.min(lifetimeMs - ageMs, bounds.maxFreshSeconds * 1000);
  const leastMs = Math.max(Math.min(freshMs(ageMs), clockToleranceMs), bounds.minFreshSeconds * 1000);
  const remainingMs = freshMs(Math.max(ageMs, ageByDateMs));
  const until = (staleSeconds: number): number => requestedAtMs + Math.max(remainingMs + staleSeconds * 1000, leastMs);

  const mustRevalidate = noReuse || has("must-revalidate");
  const stale = mustRevalidate ? 0 : Math.min(seconds("stale-while-revalidate") ?? 0, bounds.maxStaleSeconds);
  const outage = mustRevalidate ? 0 : Math.min(seconds("stale-if-error") ?? Infinity, bounds.outageToleranceSeconds);
  const freshUntil = until(0);
  return {
    since: requestedAtMs,
    refreshFrom: freshUntil - Math.min((freshUntil - requestedAtMs) / 5, refreshAheadMs),
    freshUntil,
    staleUntil: until(stale),
    outageUntil: until(Math.max(stale, outage)),
  };
}

/** Reports whether a response had expired before it was requested. If it had, a cache must have sent it. */
export function hadExpired(headers: CachingHeaders, requestedAtMs: number, bounds: FreshnessBounds): boolean {
  const { lifetimeMs } = lifetimeOf(headers, requestedAtMs, bounds);
  const ageMs = Math.max(ageSeconds(headers.age) * 1000, dateAgeMs(headers, requestedAtMs));
  return ageMs > Math.max(lifetimeMs, clockToleranceMs);
}

/** @see RFC 9111 section 4.2.1 */
function lifetimeOf(headers: CachingHeaders, requestedAtMs: number, { defaultFreshSeconds }: FreshnessBounds) {
  const directives = parseCacheControl(headers.cacheControl ?? "");
  const has = (name: string): boolean => directives.has(name);
  const seconds = (name: string): number | undefined => (has(name) ? (directives.get(name) ?? 0) : undefined);
  const noReuse = has("no-store") || has("no-cache");
  const lifetime = seconds("max-age") ?? expiresIn(headers, requestedAtMs) ?? defaultFreshSeconds;
  return { has, seconds, noReuse, lifetimeMs: noReuse ? 0 : lifetime * 1000 };
}

/**
 * Returns the time, in milliseconds, between when the response left the origin, according to its `Date`, and when it
 * was requested.
 *
 * @see RFC 9111 section 4.2.3
 */
export function dateAgeMs({ date }: CachingHeaders, requestedAtMs: number): number {
  return requestedAtMs - (httpDate(date) ?? requestedAtMs);
}

/**
 * Reports whether a response may currently be used. A response from the future cannot be used: the clock must have been
 * set back, so the response's age is unknown.
 */
export function mayUse(response: Freshness, until: Until, nowMs: number): boolean {
  return response.since <= nowMs && nowMs < response[until];
}

/**
 * Returns `Expires` minus `Date`, in seconds. An invalid `Expires`, such as `0`, is treated as a time in the past. If
 * `Date` is missing (browsers hide it from other origins), uses the time of the request instead.
 *
 * @see RFC 9111 section 5.3; RFC 9110 section 6.6.1
 */
function expiresIn({ expires, date }: CachingHeaders, requestedAtMs: number): number | undefined {
  if (expires === undefined) return undefined;
  const end = httpDate(expires) ?? -Infinity;
  return Math.max((end - (httpDate(date) ?? requestedAtMs)) / 1000, 0);
}
