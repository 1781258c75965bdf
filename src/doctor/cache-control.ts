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
  const said = field(exchange, "cache-control") ?? "";
  const has = (directive: string): boolean => new RegExp(`(^|[\\s,])${directive}\\s*($|[,=])`, "i").test(said);
  const seconds = (directive: string): number | undefined => {
    const [, digits] = new RegExp(`(?:^|[\\s,])${directive}\\s*=\\s*"?(\\d{1,10})`, "i").exec(said) ?? [];
    return digits === undefined ? undefined : Number(digits);
  };
  const noStore = has("no-store");
  if (noStore || has("no-cache")) return { noStore };
  const stated = ["max-age", "s-maxage"].flatMap((directive) => seconds(directive) ?? []);
  const freshSeconds = stated.length > 0 ? Math.max(...stated) : untilExpires(exchange);
  if (freshSeconds === undefined || freshSeconds <= 0) return { noStore };
  const staleSeconds = has("must-revalidate") ? 0 : (seconds("stale-while-revalidate") ?? 0);
  return { noStore, freshSeconds, servedSeconds: freshSeconds + staleSeconds };
}

function untilExpires(exchange: Exchange): number | undefined {
  const [expires, date] = [field(exchange, "expires"), field(exchange, "date")].map((text) => Date.parse(text ?? ""));
  const seconds = ((expires ?? Number.NaN) - (date ?? Number.NaN)) / 1000;
  return Number.isNaN(seconds) ? undefined : seconds;
}
