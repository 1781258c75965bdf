import { type Note, note } from "../finding.ts";
import type { Observations } from "../observations.ts";

const soonMs = 14 * 24 * 3600 * 1000;

/** Checks that the TLS certificates do not expire soon. */
export function checkTls({ at, discovery, set }: Observations): Note[] {
  const ends = new Map<string, number>();
  for (const exchange of [discovery, set]) {
    if (exchange?.tls !== undefined && exchange.url !== undefined)
      ends.set(new URL(exchange.url).host, exchange.tls.notAfter);
  }
  return [...ends]
    .filter(([, notAfter]) => notAfter - at < soonMs)
    .map(([host, notAfter]) =>
      note("TLS_EXPIRES", `${host}: expires on ${new Date(notAfter).toISOString().slice(0, 10)}`),
    );
}
