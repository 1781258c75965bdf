import { type Metric, counter, createTally } from "../base/metrics.ts";
import type { ProviderEvent } from "./options.ts";

/** How a key ended: after its last token had expired, or at once. */
export type KeyEnd = "removed" | "revoked";

/** So many rotations back; a key manager knows of all. */
const maxKids = 1_000;

/**
 * Tells of tokens that name a key which is no longer published: late ones, or forged ones of a key that was stolen. Anybody can send one, since
 * kids are public; the signature is not looked at.
 *
 * @param endOf what somebody else knows of a kid
 */
export function createRetiredKids(
  emit: (event: ProviderEvent) => void,
  endOf: (kid: string) => KeyEnd | undefined = () => undefined,
) {
  /** Kids that an update took out of the keyset, the oldest first. */
  const taken = new Set<string>();
  const presented = createTally();
  return {
    /** The keyset has these kids now, and had those. */
    update(kids: readonly string[], before: readonly string[]): void {
      for (const kid of kids) taken.delete(kid);
      for (const kid of before) if (!kids.includes(kid)) taken.add(kid);
      for (const kid of taken) if (taken.size > maxKids) taken.delete(kid);
    },
    /** A token has a kid that is not published. */
    note(kid: string): void {
      const end = endOf(kid) ?? (taken.has(kid) ? "removed" : undefined);
      if (end === undefined) return;
      presented.add(end);
      emit({ type: "retired-kid-presented", kid, end });
    },
    metrics: (): Metric =>
      counter(
        ["jwksd_retired_kids_presented_total", "Tokens passed to verify with the kid of a removed or revoked key."],
        presented.values("end"),
      ),
  };
}
