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
   */
  use(id: string, expiresAt: number): boolean | Promise<boolean>;
}

/**
 * A store in the memory of this process. When it is full of tokens that have not expired, it refuses new ones rather than forget.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @throws TokenError `ERR_REPLAY_FULL`, from `use`
 */
export function memoryReplayStore({
  maxEntries = 100_000,
  clock = systemClock,
}: { readonly maxEntries?: number; readonly clock?: Pick<Clock, "now"> } = {}): ReplayStore {
  checkBounds({ maxEntries }, 1);
  const used = new Map<string, number>();
  return {
    use(id, expiresAt) {
      const now = clock.now();
      const until = used.get(id);
      if (until !== undefined && now < until) return false;
      if (used.size >= maxEntries) for (const [other, end] of used) if (end <= now) used.delete(other);
      if (used.size >= maxEntries) {
        throw new TokenError("ERR_REPLAY_FULL", `${maxEntries} tokens that have not expired are remembered already`);
      }
      used.set(id, expiresAt);
      return true;
    },
  };
}
