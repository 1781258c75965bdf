import { withDeadline } from "../../base/async.ts";
import { type Clock, type Instant, epochMs, instantNow, longestSince } from "../../base/clock.ts";
import { FetchError, asJwksdError, invalidOption } from "../../base/errors.ts";
import { outlivesRequests } from "../../base/runtime.ts";
import { shownUrl } from "../../base/urls.ts";
import { type Freshness, type FreshnessBounds, type Until, freshness, hadExpired, mayUse } from "./freshness.ts";
import type { KeySetEvent, KeySetPlace } from "./options.ts";
import type { FetchedSet } from "./source.ts";
import {
  type KeySetState,
  type ReadKeys,
  type StoredSet,
  difference,
  isKeySetState,
  isOutdated,
  storedSet,
} from "./stored.ts";
import { checkSecureUrl } from "./urls.ts";

export interface KeptSetOptions {
  readonly place: KeySetPlace;
  readonly allowInsecure: boolean;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly readKeys: ReadKeys;
  readonly bounds: FreshnessBounds;
  /** Number of removed keys that are remembered. */
  readonly maxRemoved: number;
  readonly state: KeySetState | undefined;
  /** Returns the state from where an earlier process stored it. Called once, when the first key is needed. */
  readonly loadState: (() => Promise<KeySetState | undefined>) | undefined;
  readonly emit: (event: KeySetEvent) => void;
  /** Called if a set has a key that no earlier set had. */
  readonly onNewKeys: () => void;
}

/** A set and its times. */
export type KeptSet = StoredSet & Freshness;

/** Keeps the latest set. */
export interface SetKeeper {
  current(): KeptSet | undefined;
  /** Returns the set if it may be used now. */
  usable(until: Until, now?: number): KeptSet | undefined;
  /** Stores a fetched set. @throws FetchError `ERR_FETCH_OUTDATED` */
  store(this: void, fetched: FetchedSet, bypassCaches: boolean): void;
  /** Restores the set from the `state` option. */
  restore(): Promise<void> | undefined;
  /** Restores the set from `loadState`, if that returns it in time. */
  load(): Promise<void>;
  drop(): void;
}

const loadTimeoutMs = 1_000;

export function createSetKeeper(options: KeptSetOptions): SetKeeper {
  const { place, allowInsecure, clock, signal, readKeys, bounds, maxRemoved, loadState, emit, onNewKeys } = options;
  const strictBounds = { ...bounds, maxStaleSeconds: 0, outageToleranceSeconds: 0 };
  let kept: KeptSet | undefined;
  /** Time at which the set was stored. */
  let storedAt: Instant | undefined;
  /** Hashes of keys that earlier sets had and this one does not have, in the order of their removal. */
  const removedKeys = new Set<string>();
  let unrestored = options.state;
  let restoring: Promise<void> | undefined;
  let loading: Promise<void> | undefined;

  function usable(until: Until, now: number = clock.now()): KeptSet | undefined {
    if (kept === undefined || storedAt === undefined || !mayUse(kept, until, now)) return undefined;
    // A clock that was set back makes no set younger.
    return epochMs(storedAt.wall) + longestSince(storedAt, clock) < kept[until] ? kept : undefined;
  }

  function replace(next: StoredSet): void {
    signal.throwIfAborted();
    const before = kept;
    const { added, removed, removedHashes } = difference(before, next);
    // Removed keys may come back from a replica with an old set and may have been revoked. So a set with one is used only while it is fresh.
    const returned = [...added.values()].filter((hash) => removedKeys.delete(hash));
    for (const hash of removedHashes) removedKeys.add(hash);
    for (const hash of removedKeys) {
      if (removedKeys.size <= maxRemoved) break;
      removedKeys.delete(hash);
    }
    const times = freshness(next.headers, next.requestedAt, returned.length > 0 ? strictBounds : bounds);
    // Without fetches in the background, a call would have to wait for one, so the set is used until it is stale.
    kept = { ...next, ...times, refreshFrom: outlivesRequests ? times.refreshFrom : Infinity };
    storedAt = instantNow(clock);
    if (before?.keys !== next.keys && next.keys.skipped.length > 0) emit({ type: "skipped", keys: next.keys.skipped });
    if (added.size + removed.length === 0) return;
    // The keys of the first set are not new: the caller may have had them before it passed an older `state`.
    if (before !== undefined && returned.length < added.size) onNewKeys();
    emit({ type: "changed", added: [...added.keys()], removed });
  }

  async function restoreFrom(state: KeySetState): Promise<void> {
    try {
      if (!isKeySetState(state)) throw invalidOption("state is not a result of state()");
      checkSecureUrl(state.jwksUri, "jwksUri of the state", allowInsecure);
      const isOurs = state.issuer === place.issuer && (place.jwksUri === undefined || state.jwksUri === place.jwksUri);
      const set = isOurs ? await storedSet(state, readKeys) : undefined;
      // A fetch may have ended in the meantime, and its set is newer.
      if (set !== undefined && kept === undefined) replace(set);
    } catch (error) {
      emit({ type: "failed", error: asJwksdError(error) });
    }
  }

  return {
    current: () => kept,
    usable,

    store({ set, status, bytes, ageSeconds }, bypassCaches) {
      if (kept === undefined || !isOutdated(set, kept)) replace(set);
      else if (usable("freshUntil") !== undefined) {
        // A cache on the way ignored the bypass. The kept set stays until it is stale.
        kept = { ...kept, refreshFrom: Infinity };
      } else if (hadExpired(set.headers, set.requestedAt, bounds)) {
        const message = `${shownUrl(set.jwksUri)}: a cache returned an expired response that is older than the stored one`;
        throw new FetchError("ERR_FETCH_OUTDATED", message);
      } else replace(set);
      emit({ type: "refreshed", status, bytes });
      if (bypassCaches && ageSeconds > 0) emit({ type: "cache-bypass-failed", ageSeconds });
    },

    restore() {
      const state = unrestored;
      // In workerd, the clock is 0 until the first request, so a state from the future is tried again later.
      if (state !== undefined && kept === undefined && !(state?.requestedAt > clock.now())) {
        unrestored = undefined;
        restoring = restoreFrom(state);
      }
      return restoring;
    },

    async load() {
      if (loadState === undefined || kept !== undefined) return;
      loading ??= loadState().then(
        (state) => void (unrestored = state),
        (cause: unknown) => emit({ type: "failed", error: asJwksdError(cause) }),
      );
      const started = loading;
      // Each caller waits with its own timer, as for a fetch, and continues without the state if it is late.
      await withDeadline(() => started, { clock, timeoutMs: loadTimeoutMs, expired: lateState }).catch(() => {});
    },

    drop() {
      kept = undefined;
    },
  };
}

const lateState = (): Error => new Error("the state was not loaded in time");
