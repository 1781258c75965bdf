import type { CryptoKey } from "jose";
import { notify } from "../../base/async.ts";
import { FetchError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import { verificationKeys } from "../../keys/jwk/verification-keys.ts";
import { createCached } from "../http-cache/cached-response.ts";
import { type Budget, createBudget } from "../http-cache/request-budget.ts";
import { type KeySetState, type ReadKeys, setReader, withKeys } from "./cached-key-set.ts";
import { createChanges } from "./changes.ts";
import { type KeyHeader, findKey, retryLater } from "./find-key.ts";
import { createKeySetMetrics } from "./metrics.ts";
import { type KeySetEvent, type RemoteKeySetOptions, resolveOptions } from "./options.ts";
import { createSavedState } from "./restore-state.ts";
import { createSource } from "./source.ts";
import { type UnknownKids, createUnknownKids } from "./unknown-kids.ts";

/**
 * A provider's keys, as a function to pass to `jose.jwtVerify` or to the `keys` option of this package's `verify`.
 *
 * It throws TokenError `ERR_TOKEN_KID_MISSING`, `ERR_TOKEN_KID_UNKNOWN` and `ERR_TOKEN_ALG` if the token does not name
 * one of the provider's keys. It throws FetchError if it cannot tell because the keys cannot be fetched at the moment:
 * `ERR_KEYS_RETRY_LATER`, `ERR_FETCH_FAILED`, `ERR_FETCH_TIMEOUT`, `ERR_FETCH_STATUS`, `ERR_FETCH_REDIRECT`,
 * `ERR_FETCH_TOO_LARGE`, `ERR_FETCH_BODY` and `ERR_FETCH_OUTDATED`, which are `retryable`, and `ERR_DISCOVERY_ISSUER`,
 * `ERR_URL_INSECURE` and `ERR_CLOSED`, which are not.
 */
export interface RemoteKeySet {
  /** Returns the key that has the `kid` in a token's header and is suitable for the header's `alg`. */
  (header: KeyHeader): Promise<CryptoKey>;
  /** Fetches the discovery document and the set immediately, bypassing all caches. */
  refresh(this: void): Promise<void>;
  /** Returns the stored response, for a later process's `state` option, or `undefined` before the first response. */
  state(this: void): KeySetState | undefined;
  /** Returns the counts of this key set's fetches and rejected tokens, for a scrape. See docs/metrics.md. */
  metrics(this: void): readonly Metric[];
  /** Aborts requests. Afterward, calls throw `ERR_CLOSED` and no events are sent. */
  close(this: void): void;
}

/**
 * Creates a cache of a provider's JWK Set. The set is fetched when the first key is needed, and refreshed before it
 * becomes stale. A kid that is not in the set causes one request that bypasses all caches, within a budget. No other
 * key is ever used for an unknown kid. There are no background timers.
 *
 * @example
 * ```ts
 * const issuer = "https://login.example.com";
 * const keys = createRemoteKeySet({ issuer });
 * const { payload } = await jwtVerify(token, keys, { issuer, audience: "my-api" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws FetchError `ERR_URL_INSECURE`
 * @see OpenID Connect Core 1.0 section 10.1.1 (rotation); RFC 9111 and RFC 5861 (caching)
 */
export function createRemoteKeySet(options: RemoteKeySetOptions): RemoteKeySet {
  return createKeySet(options).keys;
}

/** Options that only other modules pass, and objects that several sets share or that outlive a set. */
export interface InternalOptions {
  /** Budget that limits the fetches for unknown kids. */
  readonly budget?: Budget;
  readonly unknownKids?: UnknownKids;
  /** Reads a JWK Set. Default: imports each key immediately and rejects a set without a usable key. */
  readonly readKeys?: ReadKeys;
  /** Maximum number of removed keys to remember. Default: 1000. */
  readonly maxRemoved?: number;
  /** Returns the value for the `state` option. Called when the first key is needed. */
  readonly loadState?: () => Promise<KeySetState | undefined>;
  /** Accepted media types of a JWK Set. Default: any. */
  readonly mediaTypes?: readonly string[];
  /** Maximum for `stale-while-revalidate`, in seconds. Default: 86400. */
  readonly maxStaleSeconds?: number;
  /** Maximum size of the decoded body, in bytes. Default: 262,144. */
  readonly maxBytes?: number;
}

/** A key set, for other modules. */
export interface SharedKeySet {
  readonly keys: RemoteKeySet;
  /** Like `keys`, but with the caller's budget for unknown kids. */
  find(this: void, header: KeyHeader, budget: Budget): Promise<CryptoKey>;
}

/** Works like {@link createRemoteKeySet}, but also accepts options that only other modules use. */
export function createKeySet(options: RemoteKeySetOptions, internal: InternalOptions = {}): SharedKeySet {
  const settings = resolveOptions(options);
  const { place, onEvent } = settings;
  const { budget = createBudget(), unknownKids = createUnknownKids()() } = internal;
  const { readKeys = withKeys(verificationKeys), maxRemoved = 1_000, maxStaleSeconds = 86_400 } = internal;
  const { loadState, mediaTypes, maxBytes = 262_144 } = internal;
  const closed = new AbortController();
  const { signal } = closed;
  const metrics = createKeySetMetrics(place.issuer ?? place.jwksUri);

  function emit(event: KeySetEvent): void {
    if (signal.aborted) return;
    metrics.record(event);
    notify(onEvent, event);
  }

  /**
   * Resets the budget, because a rotation has brought new keys. Other changes do not reset it, because while the
   * provider's replicas disagree, each fetch may bring a change but no new key.
   */
  function onNewKeys(): void {
    budget.reset();
    unknownKids.clear();
  }

  const bounds = { ...settings.bounds, maxStaleSeconds };
  const read = setReader(readKeys);
  const source = createSource({ ...settings, signal, read, mediaTypes, maxBytes });
  const cached = createCached({
    ...settings,
    signal,
    bounds,
    what: "keys",
    load: source.load,
    changing: createChanges({ bounds, maxRemoved, emit, onNewKeys }),
    retryLater,
    emit,
  });
  const { keeper, fetches } = cached;
  const saved = createSavedState({ ...settings, keeper, read, loadState, emit });
  const context = { ...settings, signal, cached, saved, unknownKids, emit };
  void saved.restore();

  const find = (header: KeyHeader, budget: Budget): Promise<CryptoKey> => findKey(context, header, budget);
  const keys = Object.assign((header: KeyHeader) => find(header, budget), {
    async refresh() {
      source.lookUpAgain();
      const startedBefore = fetches.started();
      await saved.restore();
      for (let joined = fetches.current(); joined !== undefined; joined = fetches.current()) {
        if (joined.bypassCaches && joined.number > startedBefore) break;
        await fetches.wait(joined).catch(() => {});
      }
      await fetches.wait(fetches.join(true));
    },
    state() {
      const set = keeper.current();
      if (set === undefined) return undefined;
      const { url, body, etag, headers, requestedAt } = set;
      return { issuer: place.issuer, jwksUri: url, body, etag, headers, requestedAt };
    },
    metrics: () => metrics.metrics(keeper.current()?.requestedAt),
    close() {
      closed.abort(new FetchError("ERR_CLOSED", "the key set was closed"));
      keeper.drop();
    },
  });
  return { keys, find };
}
