import { withDeadline } from "../../base/async.ts";
import { type Instant, epochMs, instantNow, longestSince } from "../../base/clock.ts";
import { FetchError, type JwksdError, asJwksdError, invalidOption } from "../../base/errors.ts";
import type { Given } from "../../base/options.ts";
import { shownUrl } from "../../base/urls.ts";
import { type Freshness, type FreshnessBounds, type Until, freshness, hadExpired, mayUse } from "./freshness.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "./options.ts";
import type { FetchedSet, SourceOptions } from "./source.ts";
import { type KeySetState, type StoredSet, difference, isKeySetState, isOutdated, storedSet } from "./stored.ts";
import { checkSecureUrl } from "./urls.ts";

export interface KeptSetOptions
  extends
    Pick<SourceOptions, "issuer" | "jwksUri" | "allowInsecure" | "readKeys" | "clock" | "signal">,
    Pick<Given<RemoteKeySetOptions>, "state"> {
  readonly bounds: FreshnessBounds;
  /** How many removed keys are remembered. */
  readonly maxRemoved: number;
  readonly emit: (event: KeySetEvent) => void;
  /** Finds a state where an earlier process put it. Asked once, when the first key is. */
  readonly loadState?: (() => Promise<KeySetState | undefined>) | undefined;
  /** Called when a set holds a key that no earlier set held. */
  readonly onNewKeys: () => void;
}

/** A set, and until when it may be used. */
export type KeptSet = StoredSet & Freshness;

const loadTimeoutMs = 1_000;

/** Keeps the newest set. */
export function createKeptSet(options: KeptSetOptions) {
  const { signal, clock, bounds, maxRemoved, emit, onNewKeys, state, loadState, ...source } = options;
  const strictBounds = { ...bounds, maxStaleSeconds: 0, outageToleranceSeconds: 0 };
  let kept: KeptSet | undefined;
  /** When the set was taken. */
  let taken: Instant | undefined;
  /** Hashes of keys that earlier sets had and this one has not; the first to go is the one that was removed first. */
  const gone = new Set<string>();
  let unrestored = state;
  let restoring: Promise<void> | undefined;
  let loading: Promise<void> | undefined;

  function usable(until: Until, now: number = clock.now()): KeptSet | undefined {
    if (kept === undefined || taken === undefined || !mayUse(kept, until, now)) return undefined;
    // A clock that was set back makes no set younger.
    return epochMs(taken.wall) + longestSince(taken, clock) < kept[until] ? kept : undefined;
  }

  function replace(next: StoredSet): void {
    signal.throwIfAborted();
    const before = kept;
    const { added, removed } = difference(before, next);
    // Removed keys may come back from a replica with an old set, and may have been revoked. So such a set is used only while it is fresh.
    const back = added.filter((kid) => gone.delete(next.hashes.get(kid) as string));
    for (const kid of removed) {
      gone.add(before?.hashes.get(kid) as string);
      if (gone.size > maxRemoved) gone.delete(gone.values().next().value as string);
    }
    kept = { ...next, ...freshness(next.headers, next.requestedAt, back.length > 0 ? strictBounds : bounds) };
    taken = instantNow(clock);
    if (before?.keys !== next.keys && next.keys.skipped.length > 0) emit({ type: "skipped", keys: next.keys.skipped });
    if (added.length + removed.length === 0) return;
    // The keys of the first set are not new: the caller may have had them before it passed an older `state`.
    if (before !== undefined && back.length < added.length) onNewKeys();
    emit({ type: "changed", added, removed });
  }

  async function takeState(state: KeySetState): Promise<void> {
    const { issuer, jwksUri, allowInsecure, readKeys } = source;
    try {
      if (!isKeySetState(state)) throw invalidOption("state is not one that state() gave");
      checkSecureUrl(state.jwksUri, "jwksUri of the state", allowInsecure);
      const fits = state.issuer === issuer && (jwksUri === undefined || state.jwksUri === jwksUri);
      const set = fits ? await storedSet(state, readKeys) : undefined;
      // A fetch may have ended meanwhile, and what it brought is newer.
      if (set !== undefined && kept === undefined) replace(set);
    } catch (error) {
      emit({ type: "failed", error: error as JwksdError });
    }
  }

  return {
    current: () => kept,
    /** The set, if it may be used now. */
    usable,

    /** Stores a fetched set. @throws FetchError `ERR_FETCH_OUTDATED` */
    take({ set, status, bytes, ageSeconds }: FetchedSet, bypassCaches: boolean): void {
      if (kept !== undefined && isOutdated(set, kept) && usable("freshUntil") !== undefined) {
        // A cache on the way ignored the bypass and gave a set that is older than the kept one, which stays until it gets stale.
        kept = { ...kept, refreshFrom: Infinity };
      } else if (isOutdated(set, kept) && hadExpired(set.headers, set.requestedAt, bounds)) {
        const message = `${shownUrl(set.jwksUri)}: a cache returned an expired response that is older than the stored one`;
        throw new FetchError("ERR_FETCH_OUTDATED", message);
      } else {
        replace(set);
      }
      emit({ type: "refreshed", status, bytes });
      if (bypassCaches && ageSeconds > 0) emit({ type: "cache-bypass-failed", ageSeconds });
    },

    /** Takes the option `state`. In workerd the clock is 0 until the first request, so a state from the future is tried again later. */
    restore(): Promise<void> | undefined {
      const state = unrestored;
      if (state !== undefined && kept === undefined && !(state?.requestedAt > clock.now())) {
        unrestored = undefined;
        restoring = takeState(state);
      }
      return restoring;
    },

    /** Takes what `loadState` finds. Each caller waits by a timer of its own, as for a fetch. */
    async load(): Promise<void> {
      if (loadState === undefined || kept !== undefined) return;
      loading ??= loadState().then(
        (state) => void (unrestored = state),
        (cause: unknown) => emit({ type: "failed", error: asJwksdError(cause) }),
      );
      const started = loading;
      await withDeadline(() => started, { clock, timeoutMs: loadTimeoutMs, expired: late }).catch(() => {});
    },

    drop(): void {
      kept = undefined;
    },
  };
}

/** The error of a state that comes too late; callers go on without it. */
const late = (): Error => new Error("a state was not found in time");
