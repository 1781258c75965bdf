import { type Clock, longestSince } from "../../base/clock.ts";
import { SignerError, asJwksdError } from "../../base/errors.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { isLive } from "../rules/records.ts";
import type { KeysInUse, Published } from "./keys-in-use.ts";
import { type Seen, clocksDiffer, clocksText } from "./store-access.ts";
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

/** Why a process does not sign. */
type Reason = "closed" | "age" | "clock";

export function createFreshness({ inUse, seen, signs, clock, signal, emit }: FreshnessOptions): Freshness {
  let noted: Reason | undefined;

  /** By the policy of what is published: a later one may allow more. */
  const leftMs = (published: Published | undefined): number =>
    published === undefined ? 0 : usableMs(published.document.policy) - longestSince(published.confirmed, clock);

  function reasonOf(published: Published | undefined): Reason | undefined {
    if (signal.aborted) return "closed";
    if (leftMs(published) <= 0) return "age";
    const last = seen();
    const skewMs = (inUse.state.document?.policy.clockSkewSeconds ?? 0) * 1000;
    // Tokens get their times from this machine's clock, and waiting periods rely on the skew.
    return signs && last !== undefined && clocksDiffer(last, clock, skewMs) ? "clock" : undefined;
  }

  function faultOf(published: Published | undefined): SignerError | undefined {
    const last = seen();
    switch (reasonOf(published)) {
      case "closed":
        return stale("its key manager was closed");
      case "age":
        return stale("it has not checked in with its store for maxStaleSeconds");
      case "clock":
        return last && stale(clocksText(last, clock));
      default:
        return undefined;
    }
  }

  const current = (): SignerError | undefined => faultOf(inUse.state.published);

  return {
    get error() {
      return current();
    },
    get leftMs() {
      return Math.max(leftMs(inUse.state.published), 0);
    },
    note() {
      if (signal.aborted || inUse.state.published === undefined) return;
      const before = noted;
      noted = reasonOf(inUse.state.published);
      if (noted === before) return;
      const error = current();
      emit(error === undefined ? { type: "fresh" } : { type: "stale", error });
    },
    permit(kid) {
      const { published } = inUse.state;
      return () => {
        const error = faultOf(published);
        if (error !== undefined) throw error;
        const isPublished = inUse.records.some((record) => record.kid === kid && isLive(record));
        if (!isPublished)
          throw stale(`kid ${JSON.stringify(kid)} was revoked or removed; take the key anew for each request`);
        const cause = signs ? inUse.state.keys.unavailable.get(kid) : undefined;
        if (cause !== undefined) throw unavailable(kid, cause);
      };
    },
  };
}

function unavailable(kid: string, cause: unknown): SignerError {
  return new SignerError("ERR_SIGNER_UNAVAILABLE", `kid ${JSON.stringify(kid)} cannot be opened by this process`, {
    cause,
  });
}

export function stale(why: string, cause?: unknown): SignerError {
  return new SignerError("ERR_SIGNER_STALE", `this process does not sign now: ${why}`, { cause });
}

export const staleBecause = (cause: unknown): SignerError =>
  cause instanceof SignerError ? cause : stale(`its store could not be read: ${asJwksdError(cause).message}`, cause);
