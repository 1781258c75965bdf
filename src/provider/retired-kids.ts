import { type Metric, counter, createTally } from "../base/metrics.ts";
import type { KeyEnd } from "./managed-keys.ts";

/** Kids that are remembered; a key manager remembers all. */
const maxKids = 1_000;

/**
 * Notices tokens that name a key which is no longer published: late tokens, or tokens forged with a stolen key. Any client can send one, since
 * kids are public; the signature is not verified.
 *
 * @param report receives each of them
 * @param endOf what the source of the keys knows about a kid
 */
export function createRetiredKids(
  report: (kid: string, end: KeyEnd) => void,
  endOf: (kid: string) => KeyEnd | undefined = () => undefined,
) {
  /** Kids that an update took out of the keyset, the oldest first. */
  const taken = new Set<string>();
  const presented = createTally();
  return {
    /** Notes a change of the keyset. */
    update(kids: readonly string[], before: readonly string[]): void {
      for (const kid of kids) taken.delete(kid);
      for (const kid of before) if (!kids.includes(kid)) taken.add(kid);
      for (const kid of taken) if (taken.size > maxKids) taken.delete(kid);
    },
    /** Notes that a token has a kid which is not published. */
    note(kid: string): void {
      const end = endOf(kid) ?? (taken.has(kid) ? "removed" : undefined);
      if (end === undefined) return;
      presented.add(end);
      report(kid, end);
    },
    metrics: (): Metric =>
      counter(
        ["jwksd_retired_kids_presented_total", "Tokens passed to verify with the kid of a removed or revoked key."],
        presented.values("end"),
      ),
  };
}
