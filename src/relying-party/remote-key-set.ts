import { notify, sleep } from "../async.ts";
import type { CryptoKey, JWSHeaderParameters } from "jose";
import { FetchError, TokenError } from "../errors.ts";
import { verificationKeys } from "../jwk/verification-keys.ts";
import { type Budget, createBudget } from "./budget.ts";
import { inWorkerd } from "./fetch-json.ts";
import { createFlights, withPause } from "./flights.ts";
import { type KeptSet, createKeptSet } from "./kept-set.ts";
import { type KeySetEvent, type RemoteKeySetOptions, resolveOptions } from "./options.ts";
import { createSource, isOutage } from "./source.ts";
import type { KeySetState, ReadKeys } from "./stored.ts";
import { type UnknownKids, createUnknownKids } from "./unknown-kids.ts";

/** Finds a key for the header of a token: by `kid`, and only for the `alg` of the key. */
export type GetKey = (header: JWSHeaderParameters) => Promise<CryptoKey>;

/** A function that `jose.jwtVerify`, and `verify` of this package, take for their keys. */
export interface RemoteKeySet extends GetKey {
  /** The function itself, by name. */
  readonly getKey: GetKey;
  /**
   * The same for tokens that came straight from the token endpoint of the provider: requests for their kids are paid from a budget
   * of their own, which a flood of made-up tokens cannot use up.
   */
  readonly fromTokenEndpoint: GetKey;
  /** Revalidates now, past all caches, after a new look at the discovery document of the issuer. */
  refresh(this: void): Promise<void>;
  /** The stored response, for the option `state` of a later process; `undefined` when there is none yet. */
  state(this: void): KeySetState | undefined;
  /** Aborts what is under way; every call from now on is refused, and nothing more is reported. */
  close(this: void): void;
}

/** What the callers of one kind share: what they may spend, and the kids of which they know that they name no key. */
interface Lane {
  readonly budget: Budget;
  readonly unknown: UnknownKids;
  /** How many callers wait. */
  waiting: number;
}

/** One call for a key that is not at hand. */
interface Call {
  readonly lane: Lane;
  /** Requests that were sent before it. */
  readonly flightsBefore: number;
  /** How much longer it may wait, in all. */
  patienceMs: number;
}

const maxWaiting = 1_000;

/**
 * The cached JWK Set of a provider, by the rules of its contract: fresh keys cost nothing, an unknown kid costs one request past all
 * caches, and a flood of made-up kids costs next to nothing. It has no timers of its own; work is done when a key is asked for.
 *
 * Its functions throw TokenError `ERR_TOKEN_KID_MISSING`, `ERR_TOKEN_KID_UNKNOWN` ("this is not a key") and `ERR_TOKEN_ALG`, and
 * FetchError ("this cannot be known now", `retryable`) `ERR_KEYS_LATER`, `ERR_FETCH_FAILED`, `ERR_FETCH_TIMEOUT`,
 * `ERR_FETCH_STATUS`, `ERR_FETCH_REDIRECT`, `ERR_FETCH_TOO_LARGE`, `ERR_FETCH_BODY`, `ERR_DISCOVERY_ISSUER`, `ERR_URL_INSECURE`,
 * `ERR_CLOSED`.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws FetchError `ERR_URL_INSECURE`
 * @see the contract, section 1 points 3 to 5; RFC 9111; RFC 5861
 */
export function createRemoteKeySet(options: RemoteKeySetOptions): RemoteKeySet {
  return createKeySet(options);
}

/** What a set may share with others, or leave to those that come after it. */
export interface KeySetParts {
  readonly budget?: Budget;
  readonly unknown?: UnknownKids;
  /** Reads a JWK Set. Default: imports each key at once. */
  readonly readKeys?: ReadKeys;
}

/** The same, of parts that are handed in. */
export function createKeySet(
  options: RemoteKeySetOptions,
  { budget = createBudget(), unknown = createUnknownKids()(), readKeys = verificationKeys }: KeySetParts = {},
): RemoteKeySet {
  const settings = resolveOptions(options);
  const { issuer, clock, maxWaitMs, onEvent } = settings;
  const closed = new AbortController();
  const { signal } = closed;
  const anyLane: Lane = { budget, unknown, waiting: 0 };
  const tokenEndpointLane: Lane = { budget: createBudget(), unknown: createUnknownKids()(), waiting: 0 };
  const source = createSource({ ...settings, signal, readKeys });
  const kept = createKeptSet({ ...settings, signal, readKeys, emit, onNewKeys: beginAnew });
  const { usable } = kept;
  const flights = createFlights({
    ...settings,
    signal,
    load: (bypass) => source.load(kept.current(), bypass),
    take: (loaded, bypass) => kept.take(loaded, bypass),
    emit,
  });
  void kept.restore();

  function forLane(lane: Lane): GetKey {
    return async ({ kid, alg = "" }) => {
      if (typeof kid !== "string" || kid === "") {
        throw new TokenError("ERR_TOKEN_KID_MISSING", "the token names no key: its header has no kid");
      }
      const now = clock.now();
      const set = usable("freshUntil", now);
      const key = set?.keys.find(kid, alg);
      if (set === undefined || key === undefined) return getKeySlowly(kid, alg, lane);
      // In workerd somebody would have to wait for it.
      if (now >= set.refreshFrom && !inWorkerd) void revalidate(now);
      return key;
    };
  }

  async function getKeySlowly(kid: string, alg: string, lane: Lane): Promise<CryptoKey> {
    const call = { lane, flightsBefore: flights.begun(), patienceMs: maxWaitMs };
    signal.throwIfAborted();
    await kept.restore();
    const set = await usableSet(call);
    return set.keys.find(kid, alg) ?? lookAgain(kid, alg, call);
  }

  /** The stored set while it may be used, else a revalidated one. */
  async function usableSet(call: Call): Promise<KeptSet> {
    const fresh = usable("freshUntil");
    if (fresh !== undefined) return fresh;
    const now = clock.now();
    const stale = usable("staleUntil") ?? usableInOutage(flights.lastError());
    if (stale !== undefined) {
      await revalidate(now);
      signal.throwIfAborted();
      return kept.current() ?? stale;
    }
    const pauseMs = flights.current() === undefined ? flights.waitMs(now) : 0;
    if (pauseMs > 0) {
      await pause(pauseMs, call);
      // Another caller may have asked in the meantime.
      return usableSet(call);
    }
    try {
      await flights.landing(flights.join(false));
    } catch (error) {
      const old = usableInOutage(error);
      if (old !== undefined) return old;
      throw error;
    }
    return kept.current() as KeptSet;
  }

  /** The stored set, if it may stand in for one that cannot be had. */
  function usableInOutage(error: unknown): KeptSet | undefined {
    return isOutage(error) ? usable("outageUntil") : undefined;
  }

  /** Asks in the background, unless somebody does already or it is too early after a failure. */
  async function revalidate(now: number): Promise<void> {
    if (flights.current() !== undefined || flights.waitMs(now) > 0) return;
    const flight = flights.join(false);
    // In workerd what a request has begun ends with its response, so this one stays for a while.
    if (inWorkerd) await flights.landing(flight, now + maxWaitMs).catch(() => flights.giveUp(flight));
  }

  /** The set does not hold the kid: asks once more, past all caches, as far as the budget goes. */
  async function lookAgain(kid: string, alg: string, call: Call): Promise<CryptoKey> {
    const { lane, flightsBefore } = call;
    for (;;) {
      const now = clock.now();
      if (await lane.unknown.has(kid, now)) throw unknownKid();
      const pauseMs = Math.max(lane.budget.waitMs(now), flights.waitMs(now));
      const joined = flights.current();
      let set: KeptSet | undefined;
      if (joined === undefined && pauseMs > 0) {
        await pause(pauseMs, call);
        set = await usableSet(call);
      } else {
        if (joined === undefined) lane.budget.spend(now);
        await flights.landing(joined ?? flights.join(true)).catch((error: unknown) => {
          throw withPause(error, lane.budget.waitMs(clock.now()));
        });
        set = kept.current();
      }
      const key = set?.keys.find(kid, alg);
      if (key !== undefined) return key;
      // What was asked before this token came, or answered by a cache, says nothing about its kid.
      if (flights.bypassedSince(flightsBefore)) {
        await lane.unknown.add(kid, clock.now());
        throw unknownKid();
      }
    }
  }

  /** Waits if that is short and not too many do; else says when to come back. */
  async function pause(pauseMs: number, call: Call): Promise<void> {
    const { lane } = call;
    if (pauseMs > call.patienceMs || lane.waiting >= maxWaiting) {
      throw keysLater(pauseMs, flights.lastError());
    }
    call.patienceMs -= pauseMs;
    lane.waiting += 1;
    try {
      await sleep(pauseMs, clock, signal);
    } finally {
      lane.waiting -= 1;
    }
  }

  /** There is a key that nobody has looked for yet. Replicas that disagree for a while make every request bring a change, but no new key. */
  function beginAnew(): void {
    for (const lane of [anyLane, tokenEndpointLane]) {
      lane.budget.reset();
      lane.unknown.clear();
    }
  }

  function emit(event: KeySetEvent): void {
    if (signal.aborted) return;
    notify(onEvent, event);
  }

  return Object.assign(forLane(anyLane), {
    getKey: forLane(anyLane),
    fromTokenEndpoint: forLane(tokenEndpointLane),
    async refresh() {
      source.lookUpAgain();
      const flightsBefore = flights.begun();
      await kept.restore();
      for (let joined = flights.current(); joined !== undefined; joined = flights.current()) {
        if (joined.bypassCaches && joined.number > flightsBefore) break;
        await flights.landing(joined).catch(() => {});
      }
      await flights.landing(flights.join(true));
    },
    state() {
      const set = kept.current();
      if (set === undefined) return undefined;
      const { jwksUri, body, etag, headers, requestedAt } = set;
      return { issuer, jwksUri, body, etag, headers, requestedAt };
    },
    close() {
      closed.abort(new FetchError("ERR_CLOSED", "the key set was closed"));
      kept.drop();
    },
  });
}

/** @param cause why keys cannot be had now, if that is known */
export function keysLater(pauseMs: number, cause?: FetchError): FetchError {
  const retryAfterSeconds = Math.ceil(pauseMs / 1000);
  const message = `the keys cannot be asked for again yet; try again in ${retryAfterSeconds} s`;
  return new FetchError("ERR_KEYS_LATER", message, { cause, retryAfterSeconds });
}

function unknownKid(): TokenError {
  return new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no key of the provider");
}
