import { type Metric, counter, createTally } from "../base/metrics.ts";
import type { KeyEnd } from "./managed-keys.ts";

/** Maximum number of kids to remember here. A key manager separately remembers all of its kids. */
const maxKids = 1_000;

/**
 * Detects tokens with the kid of a key that is no longer published: late tokens, or tokens forged with a stolen key.
 * Any client can send a token like this, because kids are public and the signature is not verified.
 *
 * @param report function that is called for each such token
 * @param endOf returns the final state of the key with this kid, according to the source of the keys
 */
export function createRetiredKids(
  report: (kid: string, end: KeyEnd) => void,
  endOf: (kid: string) => KeyEnd | undefined = () => undefined,
) {
  /** Kids that updates removed from the keyset, oldest first. */
  const removed = new Set<string>();
  const presented = createTally();
  return {
    /** Records a change to the keyset. */
    update(kids: readonly string[], before: readonly string[]): void {
      for (const kid of kids) removed.delete(kid);
      for (const kid of before) if (!kids.includes(kid)) removed.add(kid);
      for (const kid of removed) if (removed.size > maxKids) removed.delete(kid);
    },
    /** Records a token with a kid that is not published. */
    recordToken(kid: string): void {
      const end = endOf(kid) ?? (removed.has(kid) ? "removed" : undefined);
      if (end === undefined) return;
      presented.add(end);
      report(kid, end);
    },
    metrics: (): Metric =>
      counter(
        [
          "jwksd_retired_kids_presented_total",
          "Tokens passed to verify() whose kid belongs to a removed or revoked key.",
        ],
        presented.values("end"),
      ),
  };
}
