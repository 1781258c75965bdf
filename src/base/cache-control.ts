/**
 * What a Cache-Control says to caches of any kind, in seconds. `maxAge` is the longer of `max-age` and `s-maxage`.
 *
 * @see RFC 9111 section 5.2.2, RFC 5861 section 3
 */
export function cacheDirectives(cacheControl: string) {
  const has = (directive: string): boolean => new RegExp(`(^|[\\s,])${directive}\\s*($|[,=])`, "i").test(cacheControl);
  const seconds = (directive: string): number | undefined => {
    const [, digits] = new RegExp(`(?:^|[\\s,])${directive}\\s*=\\s*"?(\\d{1,10})`, "i").exec(cacheControl) ?? [];
    return digits === undefined ? undefined : Number(digits);
  };
  const ages = ["max-age", "s-maxage"].flatMap((directive) => seconds(directive) ?? []);
  return {
    noStore: has("no-store"),
    noCache: has("no-cache"),
    maxAge: ages.length === 0 ? undefined : Math.max(...ages),
    whileRevalidated: has("must-revalidate") ? 0 : (seconds("stale-while-revalidate") ?? 0),
  };
}
