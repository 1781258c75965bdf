import type { CryptoKey } from "jose";
import type { Clock } from "../../base/clock.ts";
import { FetchError, type JwksdError, TokenError } from "../../base/errors.ts";
import { maxKidLength } from "../../keys/jwk/verification-keys.ts";
import type { Cached } from "../http-cache/cached-response.ts";
import type { Budget } from "../http-cache/request-budget.ts";
import { withPause } from "../http-cache/single-flight.ts";
import type { KeptKeys } from "./cached-key-set.ts";
import type { KeySetEvent } from "./options.ts";
import type { SavedState } from "./restore-state.ts";
import type { UnknownKids } from "./unknown-kids.ts";

/** The members of a header that select a key. Others are ignored. */
export interface KeyHeader {
  readonly kid?: string | undefined;
  readonly alg?: string | undefined;
}

/** State and limits that the functions of one key set share. */
export interface KeySetContext {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly cached: Cached<KeptKeys>;
  readonly saved: SavedState;
  readonly unknownKids: UnknownKids;
  readonly emit: (event: KeySetEvent) => void;
}

/**
 * Returns the key for a token's header.
 *
 * @param budget limits the fetches for unknown kids
 * @throws TokenError, FetchError, for the same reasons as `RemoteKeySet`
 */
export async function findKey(
  context: KeySetContext,
  { kid, alg = "" }: KeyHeader,
  budget: Budget,
): Promise<CryptoKey> {
  const { clock, cached } = context;
  const { keeper, refreshAhead } = cached;
  if (typeof kid !== "string" || kid === "") {
    throw new TokenError("ERR_TOKEN_KID_MISSING", "the token's header has no kid");
  }
  if (kid.length > maxKidLength) throw unknownKid(context);
  const now = clock.now();
  const set = keeper.usable("freshUntil", now);
  const key = set?.value.keys.find(kid, alg);
  if (set === undefined || key === undefined) return findAfterFetch(context, kid, alg, budget);
  refreshAhead(now);
  return key;
}

async function findAfterFetch(context: KeySetContext, kid: string, alg: string, budget: Budget): Promise<CryptoKey> {
  const { signal, cached, saved } = context;
  const startedBefore = cached.fetches.started();
  signal.throwIfAborted();
  await saved.load();
  await saved.restore();
  const { value } = await cached.usable();
  return value.keys.find(kid, alg) ?? findAfterRefetch(context, kid, alg, budget, startedBefore);
}

/**
 * Refetches the set, bypassing caches, for a kid that is not in the stored set, if the budget allows it.
 *
 * @param startedBefore number of fetches that had been started before the call
 * @throws TokenError, FetchError
 */
async function findAfterRefetch(
  context: KeySetContext,
  kid: string,
  alg: string,
  budget: Budget,
  startedBefore: number,
): Promise<CryptoKey> {
  const { clock, cached, unknownKids } = context;
  const { keeper, fetches } = cached;
  for (;;) {
    const now = clock.now();
    // A different client, with a different budget, may have named the kid just before it was published.
    if (!budget.isWhole(now) && (await unknownKids.has(kid, now))) throw unknownKid(context);
    let fetch = fetches.current();
    if (fetch === undefined) {
      const pauseMs = Math.max(budget.waitMs(now), fetches.waitMs(now));
      if (pauseMs > 0) throw tooEarly(context, pauseMs);
      budget.spend(now);
      fetch = fetches.join(true);
    }
    await fetches.wait(fetch).catch((error: unknown) => {
      throw withPause(error, budget.waitMs(clock.now()));
    });
    const key = keeper.current()?.value.keys.find(kid, alg);
    if (key !== undefined) return key;
    // Only a fetch that started after this token arrived and bypassed all caches proves that its kid is unknown.
    if (fetches.bypassedSince(startedBefore)) {
      await unknownKids.add(kid, clock.now());
      throw unknownKid(context);
    }
  }
}

/**
 * Returns the error for a call whose fetch is not allowed yet. A kid that is missing from a fresh set counts as
 * unknown, because the provider has said how long the set may be kept, and because a flood of forged kids must not look
 * like an outage of this verifier.
 */
function tooEarly(context: KeySetContext, pauseMs: number): TokenError | FetchError {
  const { clock, emit } = context;
  const { keeper, fetches } = context.cached;
  if (fetches.waitMs(clock.now()) === 0 && keeper.usable("freshUntil") !== undefined) return unknownKid(context);
  emit({ type: "exhausted" });
  return retryLater(pauseMs, fetches.lastError());
}

function unknownKid({ emit }: KeySetContext): TokenError {
  emit({ type: "unknown-kid" });
  return new TokenError("ERR_TOKEN_KID_UNKNOWN", "the token's kid does not match any of the provider's usable keys");
}

/** Creates the error for keys that cannot be fetched yet. @param cause the last failure, if it is the reason */
export function retryLater(pauseMs: number, cause?: JwksdError): FetchError {
  const retryAfterSeconds = Math.ceil(pauseMs / 1000);
  const message = `the keys cannot be fetched again yet; try again in ${retryAfterSeconds} s`;
  return new FetchError("ERR_KEYS_RETRY_LATER", message, { cause, retryAfterSeconds });
}
