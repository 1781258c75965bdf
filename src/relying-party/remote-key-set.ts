import type { CryptoKey, JWSHeaderParameters } from "jose";
import { checkBounds } from "../bounds.ts";
import { type Clock, systemClock } from "../clock.ts";
import { ConfigError, FetchError, type JwksdError, TokenError } from "../errors.ts";
import type { SkippedKey } from "../jwk/verification-keys.ts";
import { type Budget, createBudget } from "./budget.ts";
import { type Fetch, inWorkerd } from "./fetch-json.ts";
import { type Freshness, ageSeconds, freshness, mayUse } from "./freshness.ts";
import { createSource } from "./source.ts";
import { type KeySetState, type StoredSet, difference, isKeySetState, storedSet } from "./stored.ts";
import { checkUrl } from "./urls.ts";

/** What happened to a key set. */
export type KeySetEvent =
  | { readonly type: "refreshed"; readonly status: 200 | 304 }
  | { readonly type: "changed"; readonly added: readonly string[]; readonly removed: readonly string[] }
  /** Entries that cannot be used. */
  | { readonly type: "skipped"; readonly keys: readonly SkippedKey[] }
  | { readonly type: "failed"; readonly error: JwksdError }
  /** A cache on the way answered although it was asked not to; a rotated key may reach this verifier late. */
  | { readonly type: "bypass-ineffective"; readonly ageSeconds: number };

/** Options of `createRemoteKeySet`. Either `issuer` or `jwksUri` is required. */
export interface RemoteKeySetOptions {
  /** The keys are those of this OpenID provider, by discovery. */
  readonly issuer?: string | undefined;
  /** The keys are at this URL. */
  readonly jwksUri?: string | undefined;
  /** Allows http for hosts that are not loopback. Default: `false`. */
  readonly allowInsecure?: boolean | undefined;
  /** Default: the global `fetch`. */
  readonly fetch?: Fetch | undefined;
  readonly clock?: Clock | undefined;
  /** For one request, body included, in milliseconds. Default: 5000. */
  readonly timeoutMs?: number | undefined;
  /** Of a decoded body. Default: 262144. */
  readonly maxBytes?: number | undefined;
  /** A set counts as fresh for at least so long, whatever its server says, in seconds. Default: 5. */
  readonly minFreshSeconds?: number | undefined;
  /** Default: 86400. */
  readonly maxFreshSeconds?: number | undefined;
  /** How long to use a stale set while its server fails, unless it forbids that, in seconds. Default: 3600. */
  readonly maxStaleIfErrorSeconds?: number | undefined;
  /** How long a call may wait for the next request, in milliseconds. Default: 1000. */
  readonly maxWaitMs?: number | undefined;
  readonly onEvent?: ((event: KeySetEvent) => void) | undefined;
  /** A stored response from `state()` of an earlier process. One that does not fit is passed over. */
  readonly state?: KeySetState | undefined;
}

/** Finds a key for the header of a token: by `kid`, and only for the `alg` of the key. */
export type GetKey = (header: JWSHeaderParameters) => CryptoKey | Promise<CryptoKey>;

/** A function that `jose.jwtVerify`, and `verify` of this package, take for their keys. */
export interface RemoteKeySet extends GetKey {
  /** The function itself, by name. */
  readonly getKey: GetKey;
  /**
   * The same for tokens that came straight from the token endpoint of the provider: requests for their kids are paid from a budget
   * of their own, which a flood of made-up tokens cannot use up.
   */
  readonly fromTokenEndpoint: GetKey;
  /** Revalidates now, past all caches. */
  refresh(this: void): Promise<void>;
  /** The stored response, for the option `state` of a later process; `undefined` when there is none yet. */
  state(this: void): KeySetState | undefined;
  /** Aborts what is under way; every call from now on is refused, and nothing more is reported. */
  close(this: void): void;
}

/** What the callers of one kind share: what they may spend, and the kids of which they know that they name no key. */
interface Lane {
  readonly budget: Budget;
  /** Kid to the moment from which that was known. */
  readonly unknown: Map<string, number>;
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

interface Flight {
  readonly number: number;
  readonly bypassCaches: boolean;
  /** When it must have landed, by its own timeouts. */
  readonly dueMs: number;
  readonly landed: Promise<void>;
}

const negativeMs = 10_000;
const maxNegative = 1_000;
/** So that a thousand of them are small; kids are made up by whoever sends tokens. */
const maxRememberedKidLength = 1_024;
const maxSeen = 1_000;
const maxWaiting = 1_000;
const defaultFreshSeconds = 300;
const maxStaleSeconds = 86_400;
/** For all that a request does beside waiting. */
const slackMs = 1_000;

/**
 * The cached JWK Set of a provider, by the rules of its contract: fresh keys cost nothing, an unknown kid costs one request past all
 * caches, and a flood of made-up kids costs next to nothing. It has no timers of its own; work is done when a key is asked for.
 *
 * Its functions throw TokenError `ERR_TOKEN_KID_MISSING`, `ERR_TOKEN_KID_UNKNOWN` ("this is not a key") and `ERR_TOKEN_ALG`, and
 * FetchError ("this cannot be known now", `retryable`) `ERR_KEYS_LATER`, `ERR_FETCH_FAILED`, `ERR_FETCH_TIMEOUT`,
 * `ERR_FETCH_STATUS`, `ERR_FETCH_REDIRECT`, `ERR_FETCH_TOO_LARGE`, `ERR_FETCH_BODY`, `ERR_DISCOVERY_ISSUER`, `ERR_URL_INSECURE`,
 * `ERR_CLOSED`.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @throws FetchError `ERR_URL_INSECURE`
 * @see the contract, section 1 points 3 to 5; RFC 9111; RFC 5861
 */
export function createRemoteKeySet(options: RemoteKeySetOptions): RemoteKeySet {
  const { issuer, allowInsecure = false, clock = systemClock, onEvent } = options;
  const { timeoutMs = 5_000, maxBytes = 262_144, maxWaitMs = 1_000 } = options;
  const { minFreshSeconds = 5, maxFreshSeconds = 86_400, maxStaleIfErrorSeconds = 3_600 } = options;
  checkBounds({ timeoutMs, maxBytes }, 1);
  checkBounds({ maxWaitMs, minFreshSeconds, maxFreshSeconds, maxStaleIfErrorSeconds }, 0);
  if ((issuer === undefined) === (options.jwksUri === undefined)) {
    throw new ConfigError("ERR_OPTION_INVALID", "give either issuer or jwksUri");
  }
  if (issuer !== undefined) checkUrl(issuer, "issuer", allowInsecure);
  if (options.jwksUri !== undefined) checkUrl(options.jwksUri, "jwksUri", allowInsecure);
  const bounds = { minFreshSeconds, maxFreshSeconds, defaultFreshSeconds, maxStaleSeconds, maxStaleIfErrorSeconds };
  const closed = new AbortController();
  const source = createSource({
    issuer,
    jwksUri: options.jwksUri,
    allowInsecure,
    fetch: options.fetch ?? ((url, init) => globalThis.fetch(url, init)),
    clock,
    timeoutMs,
    maxBytes,
    signal: closed.signal,
  });

  let stored: (StoredSet & Freshness) | undefined;
  let flight: Flight | undefined;
  let flights = 0;
  let landedLast = 0;
  /** Number of the last one that passed all caches. */
  let bypassedLast = 0;
  let lastError: FetchError | undefined;
  /** Paces requests after failures: one at once, then as every budget. */
  const failures = createBudget(1);
  const anyLane: Lane = { budget: createBudget(), unknown: new Map(), waiting: 0 };
  const tokenEndpointLane: Lane = { budget: createBudget(), unknown: new Map(), waiting: 0 };
  /** Keys of this set and of earlier ones. */
  const seen = new Set<string>();
  let { state: unrestored } = options;
  let restoring: Promise<void> | undefined;
  void restore();

  // ---- asking for a key

  function getKey(header: JWSHeaderParameters, lane: Lane): CryptoKey | Promise<CryptoKey> {
    const { kid, alg = "" } = header;
    if (typeof kid !== "string" || kid === "") {
      throw new TokenError("ERR_TOKEN_KID_MISSING", "the token names no key: its header has no kid");
    }
    return (
      usable("freshUntil")?.keys.find(kid, alg) ??
      getKeySlowly(kid, alg, { lane, flightsBefore: flights, patienceMs: maxWaitMs })
    );
  }

  async function getKeySlowly(kid: string, alg: string, call: Call): Promise<CryptoKey> {
    closed.signal.throwIfAborted();
    await restore();
    const set = await usableSet(call);
    return set.keys.find(kid, alg) ?? lookAgain(kid, alg, call);
  }

  /** The stored set, if it may be used in this way now. */
  function usable(until: "freshUntil" | "staleUntil" | "ifErrorUntil"): StoredSet | undefined {
    return stored !== undefined && mayUse(stored, until, clock.now()) ? stored : undefined;
  }

  /** The stored set while it may be used, else a revalidated one. */
  async function usableSet(call: Call): Promise<StoredSet> {
    const now = clock.now();
    const fresh = usable("freshUntil");
    if (fresh !== undefined) return fresh;
    const isFlying = current() !== undefined;
    const pauseMs = isFlying ? 0 : failures.waitMs(now);
    const stale = usable("staleUntil");
    if (stale !== undefined) {
      if (isFlying || pauseMs > 0) return stale;
      const revalidation = fly(false);
      // There what a request has begun ends with its response, so this one stays for a while.
      if (inWorkerd) await landing(revalidation, now + maxWaitMs).catch(() => giveUp(revalidation));
      closed.signal.throwIfAborted();
      return stored ?? stale;
    }
    if (pauseMs > 0) {
      const substituted = substitute(lastError);
      if (substituted !== undefined) return substituted;
      await pause(pauseMs, call);
      // Another caller may have asked in the meantime.
      return usableSet(call);
    }
    try {
      await landing(fly(false));
    } catch (error) {
      const substituted = substitute(error);
      if (substituted !== undefined) return substituted;
      throw error;
    }
    return stored as StoredSet & Freshness;
  }

  /** The stale set, if it may stand in for a request that failed. */
  function substitute(error: unknown): StoredSet | undefined {
    return error instanceof FetchError && error.staleIfError ? usable("ifErrorUntil") : undefined;
  }

  /** The set does not hold the kid: asks once more, past all caches, as far as the budget goes. */
  async function lookAgain(kid: string, alg: string, call: Call): Promise<CryptoKey> {
    const { lane, flightsBefore } = call;
    for (;;) {
      const now = clock.now();
      if (isRemembered(lane.unknown, kid, now)) throw unknownKid();
      const pauseMs = Math.max(lane.budget.waitMs(now), failures.waitMs(now));
      const joined = current();
      let set: StoredSet | undefined;
      if (joined === undefined && pauseMs > 0) {
        await pause(pauseMs, call);
        set = await usableSet(call);
      } else {
        if (joined === undefined) lane.budget.spend(now);
        await landing(joined ?? fly(true));
        set = stored;
      }
      const key = set?.keys.find(kid, alg);
      if (key !== undefined) return key;
      // What was asked before this token came, or answered by a cache, says nothing about its kid.
      if (bypassedLast > flightsBefore) {
        remember(lane.unknown, kid, clock.now());
        throw unknownKid();
      }
    }
  }

  /** Waits if that is short and not too many do; else says when to come back. */
  async function pause(pauseMs: number, call: Call): Promise<void> {
    const { lane } = call;
    if (pauseMs > call.patienceMs || lane.waiting >= maxWaiting) {
      const retryAfterSeconds = Math.ceil(pauseMs / 1000);
      const message = `the keys cannot be asked for again yet; try again in ${retryAfterSeconds} s`;
      throw new FetchError("ERR_KEYS_LATER", message, { cause: lastError, retryAfterSeconds });
    }
    call.patienceMs -= pauseMs;
    lane.waiting += 1;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        cancelTimer();
        closed.signal.removeEventListener("abort", done);
        resolve();
      };
      const cancelTimer = clock.setTimer(done, pauseMs);
      closed.signal.addEventListener("abort", done);
    });
    lane.waiting -= 1;
    closed.signal.throwIfAborted();
  }

  // ---- one request at a time, for all callers

  /** The flight under way. In workerd it ends, without a word, with the request that began it; then it is overdue one day. */
  function current(): Flight | undefined {
    if (flight !== undefined && clock.now() >= flight.dueMs) flight = undefined;
    return flight;
  }

  /** Who began a flight leaves, and it may end with them. */
  function giveUp(left: Flight): void {
    if (flight !== left) return;
    flight = undefined;
    failures.spend(clock.now());
  }

  /** Waits for a flight by a timer of the caller's own, because those of another request may have ended with it. */
  async function landing({ landed, dueMs }: Flight, deadlineMs: number = dueMs): Promise<void> {
    const late = Promise.withResolvers<never>();
    const cancelTimer = clock.setTimer(
      () => {
        const message = "the keys were asked for, and nothing came of it in time";
        late.reject(new FetchError("ERR_FETCH_TIMEOUT", message, { staleIfError: true }));
      },
      Math.max(deadlineMs - clock.now(), 0),
    );
    try {
      await Promise.race([landed, late.promise]);
    } finally {
      cancelTimer();
    }
    closed.signal.throwIfAborted();
  }

  function fly(bypassCaches: boolean): Flight {
    const joined = current();
    if (joined !== undefined) return joined;
    flights += 1;
    const landed = load(bypassCaches, flights).then(
      () => {
        failures.reset();
        lastError = undefined;
      },
      (error: unknown) => {
        failures.spend(clock.now());
        if (error instanceof FetchError) lastError = error;
        emit({ type: "failed", error: error as JwksdError });
        throw error;
      },
    );
    const mine = {
      number: flights,
      bypassCaches,
      dueMs: clock.now() + 2 * timeoutMs + slackMs,
      landed: landed.finally(() => {
        if (flight === mine) flight = undefined;
      }),
    };
    // Callers in the background do not look.
    mine.landed.catch(() => {});
    flight = mine;
    return mine;
  }

  async function load(bypassCaches: boolean, number: number): Promise<void> {
    const { set, status, ageSeconds: age } = await source.load(stored, bypassCaches);
    // It was overdue, and another took its place.
    if (number < landedLast) return;
    landedLast = number;
    if (bypassCaches) bypassedLast = number;
    // A cache that does not let itself be passed by must not take back what the origin has said since.
    const isOutdated = bypassCaches && age > 0 && set.keys !== stored?.keys && leftOrigin(set) < leftOrigin(stored);
    if (!isOutdated || usable("freshUntil") === undefined) store(set);
    emit({ type: "refreshed", status });
    if (bypassCaches && age > 0) emit({ type: "bypass-ineffective", ageSeconds: age });
  }

  function store(next: StoredSet): void {
    closed.signal.throwIfAborted();
    const before = stored;
    stored = { ...next, ...freshness(next.headers, next.requestedAt, bounds) };
    if (before?.keys === next.keys) return;
    const { added, removed } = difference(before?.keys, next.keys);
    if (next.keys.skipped.length > 0) emit({ type: "skipped", keys: next.keys.skipped });
    if (added.length + removed.length === 0) return;
    if (isNew(next)) {
      for (const lane of [anyLane, tokenEndpointLane]) {
        lane.budget.reset();
        lane.unknown.clear();
      }
    }
    emit({ type: "changed", added, removed });
  }

  /** Whether a set holds a key that none had before. Replicas that disagree for a while make every request bring a change, but no new key. */
  function isNew({ keys }: StoredSet): boolean {
    let found = false;
    for (const [kid, identity] of keys.identities) {
      const key = `${identity} ${kid}`;
      found ||= !seen.has(key);
      seen.delete(key);
      seen.add(key);
      if (seen.size > maxSeen) seen.delete(seen.values().next().value as string);
    }
    return found;
  }

  /** A state from the future is kept for later: until its first request, workerd has the clock at 0. */
  function restore(): Promise<void> | undefined {
    const state = unrestored;
    if (state !== undefined && stored === undefined && !(state?.requestedAt > clock.now())) {
      unrestored = undefined;
      restoring = take(state);
    }
    return restoring;
  }

  async function take(state: KeySetState): Promise<void> {
    try {
      if (!isKeySetState(state)) throw new ConfigError("ERR_OPTION_INVALID", "state is not one that state() gave");
      checkUrl(state.jwksUri, "jwksUri of the state", allowInsecure);
      const fits = state.issuer === issuer && (options.jwksUri === undefined || state.jwksUri === options.jwksUri);
      if (fits) store(await storedSet(state));
    } catch (error) {
      emit({ type: "failed", error: error as JwksdError });
    }
  }

  function emit(event: KeySetEvent): void {
    if (closed.signal.aborted) return;
    // A listener that throws must not fail a verification, nor one that rejects end the process.
    (async () => onEvent?.(event))().catch(() => {});
  }

  const forLane =
    (lane: Lane): GetKey =>
    (header) =>
      getKey(header, lane);
  return Object.assign(forLane(anyLane), {
    getKey: forLane(anyLane),
    fromTokenEndpoint: forLane(tokenEndpointLane),
    async refresh() {
      const flightsBefore = flights;
      await restore();
      for (let joined = current(); joined !== undefined; joined = current()) {
        if (joined.bypassCaches && joined.number > flightsBefore) break;
        await landing(joined).catch(() => {});
      }
      await landing(fly(true));
    },
    state() {
      if (stored === undefined) return undefined;
      const { jwksUri, body, etag, headers, requestedAt } = stored;
      return { issuer, jwksUri, body, etag, headers, requestedAt };
    },
    close() {
      closed.abort(new FetchError("ERR_CLOSED", "the key set was closed"));
      stored = undefined;
    },
  });
}

/** When a response left the origin, in epoch milliseconds. */
function leftOrigin(set: StoredSet | undefined): number {
  return set === undefined ? -Infinity : set.requestedAt - ageSeconds(set.headers) * 1000;
}

function unknownKid(): TokenError {
  return new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no key of the provider");
}

function isRemembered(unknown: ReadonlyMap<string, number>, kid: string, now: number): boolean {
  const since = unknown.get(kid);
  return since !== undefined && since <= now && now < since + negativeMs;
}

function remember(unknown: Map<string, number>, kid: string, now: number): void {
  if (kid.length > maxRememberedKidLength) return;
  unknown.delete(kid);
  unknown.set(kid, now);
  if (unknown.size > maxNegative) unknown.delete(unknown.keys().next().value as string);
}
