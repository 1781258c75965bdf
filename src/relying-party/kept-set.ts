import { ConfigError, type JwksdError } from "../errors.ts";
import type { VerificationKeys } from "../jwk/verification-keys.ts";
import { type Freshness, type FreshnessBounds, type Until, freshness, mayUse } from "./freshness.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "./options.ts";
import type { Loaded, SourceOptions } from "./source.ts";
import { type KeySetState, type StoredSet, difference, isKeySetState, isOutdated, storedSet } from "./stored.ts";
import { checkUrl } from "./urls.ts";

export interface KeptSetOptions
  extends
    Pick<SourceOptions, "issuer" | "jwksUri" | "allowInsecure" | "readKeys" | "clock" | "signal">,
    Pick<RemoteKeySetOptions, "state"> {
  readonly bounds: FreshnessBounds;
  readonly emit: (event: KeySetEvent) => void;
  /** A set has brought a key that none before it had. */
  readonly onNewKeys: () => void;
}

/** A set with the moments until which it may be used. */
export type KeptSet = StoredSet & Freshness;

const maxSeen = 1_000;

/** Keeps one set, which is replaced whole. */
export function createKeptSet({ signal, clock, bounds, emit, onNewKeys, state, ...source }: KeptSetOptions) {
  const strictBounds = { ...bounds, maxStaleSeconds: 0, outageToleranceSeconds: 0 };
  let kept: KeptSet | undefined;
  /** Keys of this set and of earlier ones. */
  const seen = new Set<string>();
  let unrestored = state;
  let restoring: Promise<void> | undefined;

  function usable(until: Until, now: number = clock.now()): KeptSet | undefined {
    return kept !== undefined && mayUse(kept, until, now) ? kept : undefined;
  }

  function replace(next: StoredSet): void {
    signal.throwIfAborted();
    const before = kept;
    const { added, removed } = difference(before?.keys, next.keys);
    const known = added.filter((kid) => seen.has(keyName(next.keys, kid)));
    remember(next.keys);
    // A key that was gone is back, by a replica that lags behind, say: it is used while it is fresh, and no longer.
    const comesBack = known.length > 0;
    kept = { ...next, ...freshness(next.headers, next.requestedAt, comesBack ? strictBounds : bounds) };
    if (before?.keys !== next.keys && next.keys.skipped.length > 0) emit({ type: "skipped", keys: next.keys.skipped });
    if (added.length + removed.length === 0) return;
    // The first set is no change, and its keys may have been here before: what the caller keeps can be older.
    if (before !== undefined && known.length < added.length) onNewKeys();
    emit({ type: "changed", added, removed });
  }

  function remember(keys: VerificationKeys): void {
    for (const kid of keys.identities.keys()) {
      const name = keyName(keys, kid);
      seen.delete(name);
      seen.add(name);
      if (seen.size > maxSeen) seen.delete(seen.values().next().value as string);
    }
  }

  async function takeState(state: KeySetState): Promise<void> {
    const { issuer, jwksUri, allowInsecure, readKeys } = source;
    try {
      if (!isKeySetState(state)) throw new ConfigError("ERR_OPTION_INVALID", "state is not one that state() gave");
      checkUrl(state.jwksUri, "jwksUri of the state", allowInsecure);
      const fits = state.issuer === issuer && (jwksUri === undefined || state.jwksUri === jwksUri);
      if (fits) replace(await storedSet(state, readKeys));
    } catch (error) {
      emit({ type: "failed", error: error as JwksdError });
    }
  }

  return {
    current: () => kept,
    /** The set, if it may be used in this way now. */
    usable,

    /** Takes what a request gave. */
    take({ set, status, ageSeconds }: Loaded, bypassCaches: boolean): void {
      if (kept !== undefined && isOutdated(set, kept) && usable("freshUntil") !== undefined) {
        // The cache does not let itself be passed by. What the origin has said since is kept, to its end.
        kept = { ...kept, refreshFrom: Infinity };
      } else {
        replace(set);
      }
      emit({ type: "refreshed", status });
      if (bypassCaches && ageSeconds > 0) emit({ type: "bypass-ineffective", ageSeconds });
    },

    /** Takes the option `state`. One from the future is left for later: until its first request, workerd has the clock at 0. */
    restore(): Promise<void> | undefined {
      const state = unrestored;
      if (state !== undefined && kept === undefined && !(state?.requestedAt > clock.now())) {
        unrestored = undefined;
        restoring = takeState(state);
      }
      return restoring;
    },

    drop(): void {
      kept = undefined;
    },
  };
}

function keyName(keys: VerificationKeys, kid: string): string {
  return `${keys.identities.get(kid)} ${kid}`;
}
