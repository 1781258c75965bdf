import { cacheDirectives, httpDate } from "../base/cache-control.ts";
import type { HttpExchange } from "./observations.ts";
import { field } from "./read-exchange.ts";

/** The cache lifetime of a response, according to its headers. */
export interface Lifetime {
  readonly noStore: boolean;
  /**
   * The longer of `max-age` and `s-maxage`, or the time until `Expires`, in seconds. Absent if the response has none of
   * these or has `no-cache`.
   */
  readonly freshSeconds?: number;
  /** `freshSeconds` plus `stale-while-revalidate`, in seconds. */
  readonly servedSeconds?: number;
}

/** Returns how long caches may serve a response. @see RFC 9111 sections 4.2.1 and 5.2.2, RFC 5861 section 3 */
export function lifetimeOf(exchange: HttpExchange): Lifetime {
  const { noStore, noCache, maxAge, whileRevalidated } = cacheDirectives(field(exchange, "cache-control") ?? "");
  if (noStore || noCache) return { noStore };
  const freshSeconds = maxAge ?? untilExpires(exchange);
  if (freshSeconds === undefined || freshSeconds <= 0) return { noStore };
  return { noStore, freshSeconds, servedSeconds: freshSeconds + whileRevalidated };
}

function untilExpires(exchange: HttpExchange): number | undefined {
  const [expires, date] = [field(exchange, "expires"), field(exchange, "date")].map(httpDate);
  const seconds = ((expires ?? Number.NaN) - (date ?? Number.NaN)) / 1000;
  return Number.isNaN(seconds) ? undefined : seconds;
}
