import { type Clock, systemClock } from "../../base/clock.ts";
import { TokenError } from "../../base/errors.ts";
import { type Optional, type Rules, checkOptions, number, withMethods } from "../../base/options.ts";

/**
 * Marks a token as used, atomically. Returns `false` if it has already been used. All of a provider's replicas must
 * share one store; otherwise, a token can be used once on each.
 *
 * @param key identifies the token; it is a 43-character hash of the token's client and `jti`
 * @param expiresAt expiry, in epoch milliseconds; after that, the store may forget the token, because an expired token
 * is rejected anyway
 * @param clientId identifies the client, so that a store of limited size can keep one client from using the space that
 * others need
 * @example Redis: (key, expiresAt) => redis.set(key, "", { NX: true, PXAT: expiresAt }).then((reply) => reply === "OK")
 */
export type SetIfAbsent = (key: string, expiresAt: number, clientId: string) => boolean | Promise<boolean>;

/** One client's used tokens. */
interface Used {
  /** Each token's expiry, by key. */
  readonly tokens: Map<string, number>;
  /** Latest time at which a forgotten token may still be valid. A token that expires by then counts as used. */
  forgottenUntil: number;
}

/** Fraction of a full store that is kept when it makes room for new tokens. */
const keptShare = 3 / 4;
/**
 * Minimum time, in milliseconds, between two scans of a full store for tokens that can be dropped. The cost of a scan is
 * proportional to the size of the store.
 */
const searchEveryMs = 1_000;

/** Options for `memoryReplayStore`. */
export interface ReplayStoreOptions {
  /** Maximum number of tokens to remember. Default: 100,000. */
  readonly maxEntries?: Optional<number>;
  /** Clock. Default: the machine's clock. */
  readonly clock?: Optional<Pick<Clock, "now">>;
}

const replayStoreRules: Rules<ReplayStoreOptions> = { maxEntries: number(1), clock: withMethods("now") };

/**
 * Creates a store in this process's memory. When it is full, it forgets tokens from the clients that have the most,
 * starting with the tokens that expire first. After that, a token from one of these clients is rejected if it expires
 * no later than a forgotten token, because it may be the forgotten token. Therefore, a client cannot use the space that
 * others need, and no token is accepted twice.
 *
 * The returned function throws TokenError `ERR_REPLAY_FULL` if it cannot tell whether a token has already been used.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function memoryReplayStore(options: ReplayStoreOptions = {}): SetIfAbsent {
  const { maxEntries = 100_000, clock = systemClock } = checkOptions(options, replayStoreRules);
  const clients = new Map<string, Used>();
  let size = 0;
  let searchedAt = -Infinity;

  function forgetExpired(now: number): void {
    for (const [clientId, { tokens, forgottenUntil }] of clients) {
      for (const [key, end] of tokens) if (end <= now) size -= Number(tokens.delete(key));
      if (tokens.size === 0 && forgottenUntil <= now) clients.delete(clientId);
    }
  }

  function makeRoom(now: number): void {
    searchedAt = now;
    forgetExpired(now);
    const sizes = [...clients.values()].map(({ tokens }) => tokens.size);
    const share = fairShare(sizes, Math.floor(maxEntries * keptShare));
    for (const used of clients.values()) {
      if (used.tokens.size <= share) continue;
      const byExpiry = [...used.tokens].sort(([, one], [, other]) => one - other);
      for (const [key, end] of byExpiry.slice(0, byExpiry.length - share)) {
        size -= Number(used.tokens.delete(key));
        used.forgottenUntil = Math.max(used.forgottenUntil, end);
      }
    }
  }

  return (key, expiresAt, clientId) => {
    const now = clock.now();
    const until = clients.get(clientId)?.tokens.get(key);
    if (until !== undefined && now < until) return false;
    const exceedsClients = !clients.has(clientId) && clients.size >= maxEntries;
    const mayFindRoom = exceedsClients && Math.abs(now - searchedAt) >= searchEveryMs;
    if (until === undefined && (size >= maxEntries || mayFindRoom)) makeRoom(now);
    const used = clients.get(clientId) ?? { tokens: new Map<string, number>(), forgottenUntil: -Infinity };
    if (expiresAt <= used.forgottenUntil) {
      throw new TokenError(
        "ERR_REPLAY_FULL",
        "the client has used more tokens than the store can remember; send a token that expires later",
      );
    }
    if (!clients.has(clientId) && clients.size >= maxEntries)
      throw new TokenError("ERR_REPLAY_FULL", `the store is full of tokens from ${clients.size} clients`);
    clients.set(clientId, used);
    if (until === undefined) size += 1;
    used.tokens.set(key, expiresAt);
    return true;
  };
}

/** Returns the largest limit such that all sizes, each capped at the limit, fit into the available room. */
function fairShare(sizes: readonly number[], room: number): number {
  let left = room;
  for (const [index, size] of sizes.toSorted((one, other) => one - other).entries()) {
    const equal = Math.floor(left / (sizes.length - index));
    if (size > equal) return equal;
    left -= size;
  }
  return Infinity;
}
