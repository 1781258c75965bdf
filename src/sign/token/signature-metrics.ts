import { type Clock, monotonicNow, msBetween } from "../../base/clock.ts";
import { JwksdError, codeOf } from "../../base/errors.ts";
import {
  type Durations,
  type Metric,
  type Tally,
  counter,
  createDurations,
  createTally,
  gauge,
} from "../../base/metrics.ts";
import type { BoundedSign } from "../../keys/signer/bounded-signer.ts";

interface KeyStatistics {
  readonly results: Tally;
  readonly durations: Durations;
  readonly queued: () => number;
}

/** Counts each key's signatures and measures how long they take. */
export function createSignatures(clock: Clock, onFailure: (kid: string, error: JwksdError) => void) {
  const keys = new Map<string, KeyStatistics>();

  function statisticsOf(kid: string, { queued }: BoundedSign): KeyStatistics {
    const known = keys.get(kid);
    if (known !== undefined && known.queued === queued) return known;
    const { results = createTally(), durations = createDurations() } = known ?? {};
    const signed = { results, durations, queued };
    keys.set(kid, signed);
    return signed;
  }

  return {
    /** Wraps a function so that its calls are counted and timed. */
    measured(kid: string, sign: BoundedSign): BoundedSign {
      statisticsOf(kid, sign);
      const measured = async (...call: Parameters<BoundedSign>): ReturnType<BoundedSign> => {
        const start = monotonicNow(clock);
        try {
          const signature = await sign(...call);
          const { results, durations } = statisticsOf(kid, sign);
          durations.add(msBetween(start, monotonicNow(clock)) / 1000);
          results.add("ok");
          return signature;
        } catch (error) {
          statisticsOf(kid, sign).results.add(codeOf(error));
          if (error instanceof JwksdError && error.code !== "ERR_SIGNER_ABORTED") onFailure(kid, error);
          throw error;
        }
      };
      return Object.assign(measured, { queued: sign.queued });
    },
    /** Forgets all keys except these. Otherwise, keys would accumulate over rotations. */
    keep(kids: readonly string[]): void {
      for (const kid of keys.keys()) if (!kids.includes(kid)) keys.delete(kid);
    },
    metrics(): Metric[] {
      // Keys that are only published have no signatures to count.
      const signed = [...keys].filter(([, { results }]) => results.values("").length > 0);
      const name = "jwksd_signature_duration_seconds";
      return [
        counter(
          ["jwksd_signatures_total", "Signatures by key and result: ok or the error code."],
          signed.flatMap(([kid, { results }]) => results.values("result", { kid })),
        ),
        {
          name,
          help: "Duration of successful signatures, including time in the queue.",
          type: "histogram",
          values: signed.flatMap(([kid, { durations }]) => durations.values(name, { kid })),
        },
        gauge(
          ["jwksd_signatures_queued", "Signatures waiting in the signer's queue."],
          [...keys].map(([kid, { queued }]) => ({ labels: { kid }, value: queued() })),
        ),
      ];
    },
  };
}
