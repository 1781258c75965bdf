import { cacheDirectives } from "../base/cache-control.ts";
import { field } from "./exchange.ts";
import type { Exchange } from "./observations.ts";

/** How long caches may serve a response, by its headers. */
export interface Lifetime {
  readonly noStore: boolean;
  /** The longer of `max-age` and `s-maxage`, else by `Expires`; absent if there is neither, or with `no-cache`. */
  readonly freshSeconds?: number;
  /** `freshSeconds` plus `stale-while-revalidate`. */
  readonly servedSeconds?: number;
}

/** @see RFC 9111 sections 4.2.1 and 5.2.2, RFC 5861 section 3 */
export function lifetimeOf(exchange: Exchange): Lifetime {
  const { noStore, noCache, maxAge, whileRevalidated } = cacheDirectives(field(exchange, "cache-control") ?? "");
  if (noStore || noCache) return { noStore };
  const freshSeconds = maxAge ?? untilExpires(exchange);
  if (freshSeconds === undefined || freshSeconds <= 0) return { noStore };
  return { noStore, freshSeconds, servedSeconds: freshSeconds + whileRevalidated };
}

/** Reads an Age header, in seconds; 0 if there is none, because a cache did not serve the response. @see RFC 9111 section 5.1 */
export const ageSeconds = (age: string | undefined): number => (/^\d{1,15}$/.test(age ?? "") ? Number(age) : 0);

function untilExpires(exchange: Exchange): number | undefined {
  const [expires, date] = [field(exchange, "expires"), field(exchange, "date")].map((text) => Date.parse(text ?? ""));
  const seconds = ((expires ?? Number.NaN) - (date ?? Number.NaN)) / 1000;
  return Number.isNaN(seconds) ? undefined : seconds;
}
