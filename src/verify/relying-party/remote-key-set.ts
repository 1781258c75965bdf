import { notify } from "../../base/async.ts";
import type { CryptoKey } from "jose";
import { FetchError, TokenError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import { maxKidLength, verificationKeys } from "../../keys/jwk/verification-keys.ts";
import { type Budget, createBudget } from "./budget.ts";
import { inWorkerd } from "./fetch-json.ts";
import { createFetches, withPause } from "./fetches.ts";
import { type KeptSet, createKeptSet } from "./kept-set.ts";
import { createKeySetMetrics } from "./metrics.ts";
import { type KeySetEvent, type RemoteKeySetOptions, resolveOptions } from "./options.ts";
import { createSource, isOutage } from "./source.ts";
import { type KeySetState, type ReadKeys, withKeys } from "./stored.ts";
import { type UnknownKids, createUnknownKids } from "./unknown-kids.ts";

/** The members of a header that choose a key; others are not looked at. */
export interface KeyHeader {
  readonly kid?: string | undefined;
  readonly alg?: string | undefined;
}

/** Finds the key for the header of a token. The key has this `kid`, and is for this `alg`. */
export type GetKey = (header: KeyHeader) => Promise<CryptoKey>;

/**
 * The keys of a provider: a function for `jose.jwtVerify`, and for the option `keys` of `verify` of this package.
 *
 * It throws TokenError `ERR_TOKEN_KID_MISSING`, `ERR_TOKEN_KID_UNKNOWN` and `ERR_TOKEN_ALG`: the token names no key of the provider. It
 * throws FetchError when it cannot tell, because the keys cannot be fetched now: `ERR_KEYS_RETRY_LATER`, `ERR_FETCH_FAILED`,
 * `ERR_FETCH_TIMEOUT`, `ERR_FETCH_STATUS`, `ERR_FETCH_REDIRECT`, `ERR_FETCH_TOO_LARGE`, `ERR_FETCH_BODY` and `ERR_FETCH_OUTDATED`, which are
 * `retryable`, and `ERR_DISCOVERY_ISSUER`, `ERR_URL_INSECURE`, `ERR_CLOSED`, which are not.
 */
export interface RemoteKeySet extends GetKey {
  /** Fetches the discovery document and the set now, bypassing all caches. */
  refresh(this: void): Promise<void>;
  /** The stored response, for the option `state` of a later process; `undefined` before the first one. */
  state(this: void): KeySetState | undefined;
  /** Counts of fetches and refused tokens of this key set, made for each scrape. See docs/metrics.md. */
  metrics(this: void): readonly Metric[];
  /** Aborts requests. Later calls throw `ERR_CLOSED`, and no more events are sent. */
  close(this: void): void;
}

/**
 * Makes a cache of the JWK Set of a provider. The set is fetched when the first key is asked for, and refreshed before it gets stale. A
 * kid that is not in the set causes one request that bypasses all caches, within a budget. No other key stands in for an unknown kid.
 * There are no timers in the background.
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
  return createKeySet(options);
}

/** Parts that several sets share, or that outlive one set. */
export interface KeySetParts {
  readonly budget?: Budget;
  readonly unknown?: UnknownKids;
  /** Reads a JWK Set. Default: imports each key at once, and refuses a set without a key that can be used. */
  readonly readKeys?: ReadKeys;
  /** How many removed keys are remembered. Default: 1000. */
  readonly maxRemoved?: number;
  /** Finds the option `state` when the first key is asked for. */
  readonly loadState?: () => Promise<KeySetState | undefined>;
  /** The media types that a JWK Set may have. Default: not looked at. */
  readonly mediaTypes?: readonly string[];
  /** Cap of `stale-while-revalidate`, in seconds. Default: 86400. */
  readonly maxStaleSeconds?: number;
  /** Largest decoded body, in bytes. Default: 262,144. */
  readonly maxBytes?: number;
}

/** {@link createRemoteKeySet} from given parts. */
export function createKeySet(
  options: RemoteKeySetOptions,
  {
    budget = createBudget(),
    unknown = createUnknownKids()(),
    readKeys = withKeys(verificationKeys),
    maxRemoved = 1_000,
    loadState,
    mediaTypes,
    maxStaleSeconds = 86_400,
    maxBytes = 262_144,
  }: KeySetParts = {},
): RemoteKeySet {
  const settings = resolveOptions(options);
  const { issuer, clock, maxWaitMs, onEvent } = settings;
  const bounds = { ...settings.bounds, maxStaleSeconds };
  const closed = new AbortController();
  const { signal } = closed;
  const measured = createKeySetMetrics(settings.issuer ?? (settings.jwksUri as string));
  const source = createSource({ ...settings, signal, readKeys, mediaTypes, maxBytes });
  const kept = createKeptSet({ ...settings, bounds, maxRemoved, signal, readKeys, loadState, emit, onNewKeys });
  const { usable } = kept;
  const fetches = createFetches({
    ...settings,
    signal,
    load: (bypass) => source.load(kept.current(), bypass),
    take: (fetched, bypass) => kept.take(fetched, bypass),
    emit,
  });
  void kept.restore();

  async function getKey({ kid, alg = "" }: KeyHeader): Promise<CryptoKey> {
    if (typeof kid !== "string" || kid === "") {
      throw new TokenError("ERR_TOKEN_KID_MISSING", "the token names no key: its header has no kid");
    }
    if (kid.length > maxKidLength) throw unknownKid();
    const now = clock.now();
    const set = usable("freshUntil", now);
    const key = set?.keys.find(kid, alg);
    if (set === undefined || key === undefined) return getKeyAfterFetch(kid, alg);
    // In workerd a call would have to wait for this request, so the set is used until it gets stale.
    if (now >= set.refreshFrom && !inWorkerd) void revalidate(now);
    return key;
  }

  async function getKeyAfterFetch(kid: string, alg: string): Promise<CryptoKey> {
    const startedBefore = fetches.started();
    signal.throwIfAborted();
    await kept.load();
    await kept.restore();
    const set = await usableSet();
    return set.keys.find(kid, alg) ?? findAfterRefetch(kid, alg, startedBefore);
  }

  /** The stored set if it may be used, else a fetched one. */
  async function usableSet(): Promise<KeptSet> {
    const fresh = usable("freshUntil");
    if (fresh !== undefined) return fresh;
    const now = clock.now();
    const stale = usable("staleUntil") ?? usableInOutage(fetches.lastError());
    if (stale !== undefined) {
      await revalidate(now);
      signal.throwIfAborted();
      return kept.current() ?? stale;
    }
    const pauseMs = fetches.current() === undefined ? fetches.waitMs(now) : 0;
    if (pauseMs > 0) throw tooEarly(pauseMs);
    const fetch = fetches.join(false);
    try {
      // While an old set may be used, a server that does not answer holds no caller up for longer than that.
      await fetches.wait(fetch, usable("outageUntil") === undefined ? Infinity : maxWaitMs);
    } catch (error) {
      const old = usableInOutage(error);
      if (old === undefined) throw error;
      // workerd ends the fetch with the request that gets the old key.
      if (inWorkerd) fetches.giveUp(fetch);
      return old;
    }
    return kept.current() as KeptSet;
  }

  /** The stored set, if it may be used although fetching failed with this error. */
  function usableInOutage(error: unknown): KeptSet | undefined {
    return isOutage(error) ? usable("outageUntil") : undefined;
  }

  /** Fetches in the background, unless a fetch is under way or a failure is too recent. */
  async function revalidate(now: number): Promise<void> {
    if (fetches.current() !== undefined || fetches.waitMs(now) > 0) return;
    const fetch = fetches.join(false);
    // In workerd a fetch ends with the response to the request that started it, so this request waits.
    if (inWorkerd) await fetches.wait(fetch, maxWaitMs).catch(() => fetches.giveUp(fetch));
  }

  /**
   * The stored set lacks the kid: fetches once more, bypassing caches, if the budget allows.
   *
   * @param startedBefore how many fetches were started before the call
   */
  async function findAfterRefetch(kid: string, alg: string, startedBefore: number): Promise<CryptoKey> {
    for (;;) {
      const now = clock.now();
      if (await unknown.has(kid, now)) throw unknownKid();
      let fetch = fetches.current();
      if (fetch === undefined) {
        const pauseMs = Math.max(budget.waitMs(now), fetches.waitMs(now));
        if (pauseMs > 0) throw tooEarly(pauseMs);
        budget.spend(now);
        fetch = fetches.join(true);
      }
      await fetches.wait(fetch).catch((error: unknown) => {
        throw withPause(error, budget.waitMs(clock.now()));
      });
      const key = kept.current()?.keys.find(kid, alg);
      if (key !== undefined) return key;
      // Only a fetch after this token came, and past all caches, proves that its kid is unknown.
      if (fetches.bypassedSince(startedBefore)) {
        await unknown.add(kid, clock.now());
        throw unknownKid();
      }
    }
  }

  /**
   * Returns the error for a call whose fetch is not due yet. A kid that a fresh set lacks is unknown: its provider has said for how long it
   * keeps to the set, and a flood of forged kids must not look like an outage of this verifier.
   */
  function tooEarly(pauseMs: number): TokenError | FetchError {
    if (fetches.waitMs(clock.now()) === 0 && usable("freshUntil") !== undefined) return unknownKid();
    emit({ type: "exhausted" });
    return keysLater(pauseMs, fetches.lastError());
  }

  /**
   * A rotation makes the budget whole. Changes alone do not: while replicas of the provider disagree, each fetch may bring a change, but no
   * new key.
   */
  function onNewKeys(): void {
    budget.reset();
    unknown.clear();
  }

  function emit(event: KeySetEvent): void {
    if (signal.aborted) return;
    measured.note(event);
    notify(onEvent, event);
  }

  function unknownKid(): TokenError {
    emit({ type: "unknown-kid" });
    return new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no usable key of the provider");
  }

  return Object.assign(getKey, {
    async refresh() {
      source.lookUpAgain();
      const startedBefore = fetches.started();
      await kept.restore();
      for (let joined = fetches.current(); joined !== undefined; joined = fetches.current()) {
        if (joined.bypassCaches && joined.number > startedBefore) break;
        await fetches.wait(joined).catch(() => {});
      }
      await fetches.wait(fetches.join(true));
    },
    state() {
      const set = kept.current();
      if (set === undefined) return undefined;
      const { jwksUri, body, etag, headers, requestedAt } = set;
      return { issuer, jwksUri, body, etag, headers, requestedAt };
    },
    metrics: () => measured.metrics(kept.current()?.requestedAt),
    close() {
      closed.abort(new FetchError("ERR_CLOSED", "the key set was closed"));
      kept.drop();
    },
  });
}

/** @param cause the last failure, if one is the reason */
export function keysLater(pauseMs: number, cause?: FetchError): FetchError {
  const retryAfterSeconds = Math.ceil(pauseMs / 1000);
  const message = `the keys may not be fetched again yet; try again in ${retryAfterSeconds} s`;
  return new FetchError("ERR_KEYS_RETRY_LATER", message, { cause, retryAfterSeconds });
}
