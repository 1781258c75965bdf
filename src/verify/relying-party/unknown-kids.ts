import { textHash } from "../../keys/crypto/text-sha256.ts";

const negativeMs = 10_000;
/**
 * Maximum length of a stored kid. Attackers can choose kids, so longer kids are replaced with their hashes, which are
 * 43 characters long in base64url.
 */
const maxKeptLength = 43;

/** One set's unknown kids. */
export interface UnknownKids {
  has(kid: string, now: number): Promise<boolean>;
  /** Remembers a kid. If there are too many kids, forgets the oldest. */
  add(kid: string, now: number): Promise<void>;
  clear(): void;
}

/**
 * Remembers kids that do not name a key, each for ten seconds. Serves many sets, which share one limit.
 *
 * @returns a function that adds a set
 */
export function createUnknownKids(maxKids = 1_000): () => UnknownKids {
  /** Time at which each kid of each set was remembered, oldest first. */
  const since = new Map<string, number>();
  let sets = 0;

  function forgetOld(now: number): void {
    for (const [name, from] of since) {
      if (from <= now && now < from + negativeMs && since.size <= maxKids) return;
      since.delete(name);
    }
  }

  return () => {
    let set = (sets += 1);
    // "#" and a hash are 44 characters long, so no short kid can equal them.
    const entryName = async (kid: string): Promise<string> =>
      `${set} ${kid.length <= maxKeptLength ? kid : `#${await textHash(kid)}`}`;
    return {
      async has(kid, now) {
        const name = await entryName(kid);
        forgetOld(now);
        return since.has(name);
      },
      async add(kid, now) {
        const name = await entryName(kid);
        since.delete(name);
        since.set(name, now);
        forgetOld(now);
      },
      clear() {
        set = sets += 1;
      },
    };
  };
}
