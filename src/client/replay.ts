import { type Clock, systemClock } from "../clock.ts";
import { TokenError } from "../errors.ts";
import { checkOptions, number } from "../options.ts";

/**
 * Remembers that a token was used, in one step: `true` if it was not remembered yet. One store serves all replicas of a provider, or
 * a token can be used once at each.
 *
 * @param key names the token: a hash of its client and its `jti`, 43 characters
 * @param expiresAt epoch milliseconds; from then on the token is refused anyway, and may be forgotten
 * @param clientId whose token it is, for a store that is bounded, so that no client can fill it for all
 * @example Redis: (key, expiresAt) => redis.set(key, "", { NX: true, PXAT: expiresAt }).then((reply) => reply === "OK")
 */
export type SetIfAbsent = (key: string, expiresAt: number, clientId: string) => boolean | Promise<boolean>;

/** The tokens of one client. */
interface Used {
  /** By key, when each expires. */
  readonly tokens: Map<string, number>;
  /** Tokens that expire until then may have been forgotten, so all of those count as used. */
  forgottenUntil: number;
}

/** How much of a full store is kept, so that it is not full again at once. */
const keptShare = 3 / 4;

/**
 * A store in the memory of this process. When it is full, the clients with the most tokens make room: of theirs, those that expire
 * first are forgotten, and a token of theirs that expires no later than a forgotten one is refused. So no client can fill the store
 * for another, and no token is accepted twice.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @throws TokenError `ERR_REPLAY_FULL`, when a token is used of which nobody knows any more whether it was used before
 */
export function memoryReplayStore({
  maxEntries = 100_000,
  clock = systemClock,
}: { readonly maxEntries?: number; readonly clock?: Pick<Clock, "now"> } = {}): SetIfAbsent {
  checkOptions({ maxEntries }, { maxEntries: number(1) });
  const clients = new Map<string, Used>();
  let size = 0;

  function forgetExpired(now: number): void {
    for (const [clientId, { tokens, forgottenUntil }] of clients) {
      for (const [key, end] of tokens) if (end <= now) size -= Number(tokens.delete(key));
      if (tokens.size === 0 && forgottenUntil <= now) clients.delete(clientId);
    }
  }

  function makeRoom(now: number): void {
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
    if (until === undefined && (size >= maxEntries || clients.size >= maxEntries)) makeRoom(now);
    const used = clients.get(clientId) ?? { tokens: new Map<string, number>(), forgottenUntil: -Infinity };
    if (expiresAt <= used.forgottenUntil) {
      throw new TokenError(
        "ERR_REPLAY_FULL",
        "the client has used too many tokens to remember each; one that expires later is accepted",
      );
    }
    if (!clients.has(clientId) && clients.size >= maxEntries)
      throw new TokenError("ERR_REPLAY_FULL", `tokens of ${clients.size} clients are remembered, and no more can be`);
    clients.set(clientId, used);
    if (until === undefined) size += 1;
    used.tokens.set(key, expiresAt);
    return true;
  };
}

/** The most that each of several can have of a room, if nobody gets more than it has, and nobody less than another who wants more. */
function fairShare(sizes: readonly number[], room: number): number {
  let left = room;
  for (const [index, size] of sizes.toSorted((one, other) => one - other).entries()) {
    const equal = Math.floor(left / (sizes.length - index));
    if (size > equal) return equal;
    left -= size;
  }
  return Infinity;
}
