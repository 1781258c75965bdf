import { textHash } from "../text-hash.ts";

const negativeMs = 10_000;
/** Kids are made up by whoever sends tokens. A longer one is remembered by its hash, which is as long as this. */
const maxKidLength = 43;

/** Kids of one set that are known to name no key, each for ten seconds. */
export interface UnknownKids {
  has(kid: string, now: number): Promise<boolean>;
  /** Remembers a kid, at the cost of the one that was remembered first if there are too many. */
  add(kid: string, now: number): Promise<void>;
  clear(): void;
}

/**
 * What many sets remember of unknown kids, bounded over all of them.
 *
 * @returns the part of one more set
 */
export function createUnknownKids(maxKids = 1_000): () => UnknownKids {
  /** By set and kid, from when on it was known; the oldest first. */
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
    // No kid of up to 43 characters is the mark and a hash.
    const nameOf = async (kid: string): Promise<string> =>
      `${set} ${kid.length <= maxKidLength ? kid : `#${await textHash(kid)}`}`;
    return {
      async has(kid, now) {
        const name = await nameOf(kid);
        forgetOld(now);
        return since.has(name);
      },
      async add(kid, now) {
        const name = await nameOf(kid);
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
