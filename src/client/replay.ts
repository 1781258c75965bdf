import { checkBounds } from "../bounds.ts";
import { type Clock, systemClock } from "../clock.ts";
import { TokenError } from "../errors.ts";

/** Remembers which tokens were used. One store serves all replicas of a provider, or a token can be used once at each. */
export interface ReplayStore {
  /**
   * Marks a token as used, in one step: `true` if it was not used before.
   *
   * @param id names the token: a hash of its client and its `jti`, 43 characters
   * @param expiresAt epoch milliseconds; from then on the token is refused anyway, and may be forgotten
   * @param clientId whose token it is, for a store that is bounded, so that no client can fill it for all
   */
  use(id: string, expiresAt: number, clientId: string): boolean | Promise<boolean>;
}

/**
 * A store in the memory of this process. When it is full of tokens that have not expired, it refuses new ones rather than forget.
 * A client may have as many tokens in it as there is room for more: half of it if alone, and never so many that no other has room.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @throws TokenError `ERR_REPLAY_FULL`, from `use`
 */
export function memoryReplayStore({
  maxEntries = 100_000,
  clock = systemClock,
}: { readonly maxEntries?: number; readonly clock?: Pick<Clock, "now"> } = {}): ReplayStore {
  checkBounds({ maxEntries }, 1);
  /** By client, the ids of its tokens and when they expire. No client of the map is without tokens. */
  const used = new Map<string, Map<string, number>>();
  let size = 0;

  function forgetExpired(now: number): void {
    for (const [clientId, own] of used) {
      for (const [id, end] of own) if (end <= now) size -= Number(own.delete(id));
      if (own.size === 0) used.delete(clientId);
    }
  }

  const hasRoom = (clientId: string): boolean => (used.get(clientId)?.size ?? 0) < maxEntries - size;

  return {
    use(id, expiresAt, clientId) {
      const now = clock.now();
      const until = used.get(clientId)?.get(id);
      if (until !== undefined && now < until) return false;
      if (until !== undefined || !hasRoom(clientId)) forgetExpired(now);
      if (!hasRoom(clientId)) {
        const own = used.get(clientId)?.size ?? 0;
        throw new TokenError(
          "ERR_REPLAY_FULL",
          `${size} tokens that have not expired are remembered already, ${own} of client ${JSON.stringify(clientId)}; ${maxEntries} is the most, and a client has at most as many as are left`,
        );
      }
      const own = used.get(clientId) ?? new Map<string, number>();
      used.set(clientId, own.set(id, expiresAt));
      size += 1;
      return true;
    },
  };
}
