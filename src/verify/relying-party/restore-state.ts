import { withDeadline } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { asJwksdError, invalidOption } from "../../base/errors.ts";
import type { Keeper } from "../http-cache/cache-entry.ts";
import { type Read, isResponseState } from "../http-cache/stored-response.ts";
import type { KeptKeys, KeySetState } from "./cached-key-set.ts";
import type { KeySetEvent, KeySetPlace } from "./options.ts";
import { checkSecureUrl } from "./secure-urls.ts";

export interface SavedStateOptions {
  readonly place: KeySetPlace;
  readonly allowInsecure: boolean;
  readonly clock: Clock;
  readonly keeper: Keeper<KeptKeys>;
  readonly read: Read<KeptKeys>;
  readonly state: KeySetState | undefined;
  /** Returns the state that an earlier process stored. Called once, when the first key is needed. */
  readonly loadState: (() => Promise<KeySetState | undefined>) | undefined;
  readonly emit: (event: KeySetEvent) => void;
}

/** The set from an earlier process. */
export interface SavedState {
  /** Restores the set from the `state` option. */
  restore(): Promise<void> | undefined;
  /** Restores the set from `loadState`, if it responds in time. */
  load(): Promise<void>;
}

const loadTimeoutMs = 1_000;

export function createSavedState(options: SavedStateOptions): SavedState {
  const { place, allowInsecure, clock, keeper, read, loadState, emit } = options;
  let unrestored = options.state;
  let restoring: Promise<void> | undefined;
  let loading: Promise<void> | undefined;

  async function restoreFrom(state: KeySetState): Promise<void> {
    try {
      if (!isResponseState(state)) throw invalidOption("the given state was not returned by state()");
      const { issuer, jwksUri, ...response } = state;
      checkSecureUrl(jwksUri, "the state's jwksUri", allowInsecure);
      if (issuer !== place.issuer || (place.jwksUri !== undefined && jwksUri !== place.jwksUri)) return;
      const saved = { url: jwksUri, ...response };
      // If a fetch finishes in the meantime, its set is newer.
      keeper.restore({ ...saved, value: await read(saved) });
    } catch (error) {
      emit({ type: "failed", error: asJwksdError(error) });
    }
  }

  return {
    restore() {
      const state = unrestored;
      // In workerd, the clock is 0 until the first request, so a state from the future is retried later.
      if (state !== undefined && keeper.current() === undefined && !(state?.requestedAt > clock.now())) {
        unrestored = undefined;
        restoring = restoreFrom(state);
      }
      return restoring;
    },

    async load() {
      if (loadState === undefined || keeper.current() !== undefined) return;
      loading ??= loadState().then(
        (state) => void (unrestored = state),
        (cause: unknown) => emit({ type: "failed", error: asJwksdError(cause) }),
      );
      const started = loading;
      // As with a fetch, each caller waits with its own timer. If the state is late, the caller continues without it.
      await withDeadline(() => started, { clock, timeoutMs: loadTimeoutMs, expired: lateState }).catch(() => {});
    },
  };
}

const lateState = (): Error => new Error("the state was not loaded in time");
