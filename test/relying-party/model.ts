import type { FreshnessBounds } from "../../src/verify/http-cache/freshness.ts";

/** The caching fields of a response, in seconds. A missing directive is `undefined`; an invalid one is 0. */
export interface Caching {
  readonly maxAge?: number | undefined;
  readonly staleWhileRevalidate?: number | undefined;
  readonly staleIfError?: number | undefined;
  readonly mustRevalidate?: boolean;
  /** `no-store` or `no-cache`. */
  readonly noReuse?: boolean;
  /** `Expires` minus `Date`. Any negative value means expired. */
  readonly expiresIn?: number | undefined;
  readonly age?: number | undefined;
  /** The time in its `Date`, in epoch milliseconds. */
  readonly date?: number | undefined;
}

/** Times in milliseconds. */
export interface Moments {
  readonly requestedAt: number;
  readonly receivedAt: number;
  readonly now: number;
}

const ms = (seconds: number): number => seconds * 1000;

export type Use = "fresh" | "while revalidating" | "in an outage" | "not at all";

/**
 * Returns how a stored response may be used: RFC 9111 sections 4.2.1 (freshness lifetime), 4.2.3 (current age) and 4.2.4 (stale responses),
 * RFC 5861 sections 3 and 4 (windows that begin when the response becomes stale), within bounds.
 */
export function useOf(caching: Caching, { requestedAt, receivedAt, now }: Moments, bounds: FreshnessBounds): Use {
  const correctedAge = ms(caching.age ?? 0) + (receivedAt - requestedAt);
  const apparentAge = Math.max(receivedAt - (caching.date ?? receivedAt), 0);
  const currentAge = Math.max(apparentAge, correctedAge) + (now - receivedAt);
  const expiresIn = caching.expiresIn === undefined ? undefined : Math.max(caching.expiresIn, 0);
  const lifetime = ms(caching.noReuse ? 0 : (caching.maxAge ?? expiresIn ?? bounds.defaultFreshSeconds));
  const sinceRequest = now - requestedAt;
  // The upper bound limits its freshness.
  const staleFor = Math.max(currentAge - lifetime, sinceRequest - ms(bounds.maxFreshSeconds));
  if (staleFor < 0 || sinceRequest < ms(bounds.minFreshSeconds)) return "fresh";
  // The Date alone, from another clock, leaves it a minute.
  const leftByAge = Math.min(lifetime - ms(caching.age ?? 0), ms(bounds.maxFreshSeconds));
  if (sinceRequest < Math.min(leftByAge, ms(60))) return "fresh";
  if (caching.noReuse || caching.mustRevalidate) return "not at all";
  if (staleFor < ms(Math.min(caching.staleWhileRevalidate ?? 0, bounds.maxStaleSeconds))) return "while revalidating";
  if (staleFor < ms(Math.min(caching.staleIfError ?? Infinity, bounds.outageToleranceSeconds))) return "in an outage";
  return "not at all";
}

/** The default bounds of `createRemoteKeySet`. */
export const defaultBounds: FreshnessBounds = {
  minFreshSeconds: 5,
  maxFreshSeconds: 86_400,
  defaultFreshSeconds: 300,
  maxStaleSeconds: 86_400,
  outageToleranceSeconds: 3_600,
};
