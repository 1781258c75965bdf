import { ageSeconds, httpDate, parseCacheControl } from "../../base/cache-control.ts";

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

/** By how much the clocks of this machine and of a server may differ before a `Date` proves the age of a response. */
export const clockToleranceMs = 60_000;
const refreshAheadMs = 60_000;

/**
 * Computes the freshness of a response in a private cache.
 *
 * Times count from the moment of the request, so the time on the way counts as age. The age is that of `Age`, or the time since
 * `Date` if that is longer (RFC 9111 section 4.2.3). An invalid value of a directive counts as 0 (section 4.2.1). `s-maxage` is for shared
 * caches only.
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

/** Reports whether a response had expired before it was requested, so that only a cache can have sent it. */
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

/** Returns how long before its request a response left the origin, by its `Date`. @see RFC 9111 section 4.2.3 */
export function dateAgeMs({ date }: CachingHeaders, requestedAtMs: number): number {
  return requestedAtMs - (httpDate(date) ?? requestedAtMs);
}

/** Whether a response may be used now. The age of a response from the future is unknown, because the clock was set back: it may not. */
export function mayUse(response: Freshness, until: Until, nowMs: number): boolean {
  return response.since <= nowMs && nowMs < response[until];
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
