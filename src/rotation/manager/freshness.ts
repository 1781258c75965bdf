import { type Clock, type Instant, longestSince } from "../../base/clock.ts";
import { SignerError } from "../../base/errors.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { isLive } from "../rules/records.ts";
import type { KeysInUse } from "./keys-in-use.ts";
import { type Seen, clocksDiffer } from "./store-access.ts";
import type { ManagerEvent } from "./types.ts";

/** The part of `maxStaleSeconds` that a process does not use, because clocks run at different rates. */
const margin = 0.01;

/** How long what was read may be used, in milliseconds. */
export const usableMs = ({ maxStaleSeconds }: RotationPolicy): number => maxStaleSeconds * 1000 * (1 - margin);

export interface FreshnessOptions {
  readonly inUse: KeysInUse;
  /** The last read. */
  readonly seen: () => Seen | undefined;
  readonly signs: boolean;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly emit: (event: ManagerEvent) => void;
}

/**
 * A process publishes as ready, and signs, only with what it read after a confirmed word with the store that was sent less than
 * `maxStaleSeconds` ago, by the longer of its monotonic and its wall clock. Every wait of the rotation counts that time.
 */
export interface Freshness {
  /** Why this process does not sign and is not ready; `undefined` while it may. */
  readonly error: SignerError | undefined;
  /** How long it may still go on, in milliseconds. */
  readonly leftMs: number;
  /** Looks again, and tells of a change. */
  note(): void;
  /**
   * A check whether this process may sign with a key, by what it has read until now. Call it before a signature, and again when the signature is
   * there.
   */
  permit(kid: string): () => void;
}

export function createFreshness({ inUse, seen, signs, clock, signal, emit }: FreshnessOptions): Freshness {
  let noted: SignerError | undefined;

  const leftMs = (confirmed: Instant | undefined): number => {
    const { document } = inUse.state;
    return confirmed === undefined || document === undefined
      ? 0
      : usableMs(document.policy) - longestSince(confirmed, clock);
  };

  function faultOf(confirmed: Instant | undefined): SignerError | undefined {
    if (signal.aborted) return stale("its key manager was closed");
    if (leftMs(confirmed) <= 0) return stale("it has had no word with its store for maxStaleSeconds");
    const last = seen();
    const skewMs = (inUse.state.document?.policy.clockSkewSeconds ?? 0) * 1000;
    // Tokens get their times from the clock of this machine, and waits rely on the skew.
    if (!signs || last === undefined || !clocksDiffer(last, clock, skewMs)) return undefined;
    return stale("the clock of this machine and that of the store differ by more than clockSkewSeconds");
  }

  const current = (): SignerError | undefined => faultOf(inUse.state.confirmed);

  return {
    get error() {
      return current();
    },
    get leftMs() {
      return Math.max(leftMs(inUse.state.confirmed), 0);
    },
    note() {
      if (signal.aborted || inUse.state.confirmed === undefined) return;
      const before = noted;
      noted = current();
      if (noted?.message === before?.message) return;
      emit(noted === undefined ? { type: "fresh" } : { type: "stale", error: noted });
    },
    permit(kid) {
      const { confirmed } = inUse.state;
      return () => {
        const error = faultOf(confirmed);
        if (error !== undefined) throw error;
        const isPublished = inUse.records.some((record) => record.kid === kid && isLive(record));
        if (!isPublished)
          throw stale(`kid ${JSON.stringify(kid)} was revoked or removed; take the key anew for each request`);
      };
    },
  };
}

export function stale(why: string): SignerError {
  return new SignerError("ERR_SIGNER_STALE", `this process does not sign now: ${why}`);
}
