import { cacheDirectives, httpDate } from "../base/cache-control.ts";
import { field } from "./exchange.ts";
import type { Exchange } from "./observations.ts";

/** How long caches may serve a response, by its headers. */
export interface Lifetime {
  readonly noStore: boolean;
  /** The longer of `max-age` and `s-maxage`, or the time until `Expires`. Absent if there is no such header, or with `no-cache`. */
  readonly freshSeconds?: number;
  /** `freshSeconds` plus `stale-while-revalidate`. */
  readonly servedSeconds?: number;
}

/** Returns how long caches may serve a response. @see RFC 9111 sections 4.2.1 and 5.2.2, RFC 5861 section 3 */
export function lifetimeOf(exchange: Exchange): Lifetime {
  const { noStore, noCache, maxAge, whileRevalidated } = cacheDirectives(field(exchange, "cache-control") ?? "");
  if (noStore || noCache) return { noStore };
  const freshSeconds = maxAge ?? untilExpires(exchange);
  if (freshSeconds === undefined || freshSeconds <= 0) return { noStore };
  return { noStore, freshSeconds, servedSeconds: freshSeconds + whileRevalidated };
}

function untilExpires(exchange: Exchange): number | undefined {
  const [expires, date] = [field(exchange, "expires"), field(exchange, "date")].map(httpDate);
  const seconds = ((expires ?? Number.NaN) - (date ?? Number.NaN)) / 1000;
  return Number.isNaN(seconds) ? undefined : seconds;
}
