import { SignerError } from "../errors.ts";

/** Signatures under way at once. */
const limits = { all: 1_024, ofOne: 64 } as const;

/**
 * Runs work while there are places for it. One connection that pipelines without end gets few of them, so the others get theirs.
 *
 * @throws SignerError `ERR_SIGNER_BUSY`
 */
export function createPlaces() {
  const taken = new WeakMap<object, { count: number }>();
  let all = 0;
  return async <T>(connection: object, work: () => Promise<T>): Promise<T> => {
    const own = taken.get(connection) ?? { count: 0 };
    if (own.count === 0) taken.set(connection, own);
    if (own.count >= limits.ofOne || all >= limits.all) {
      throw new SignerError("ERR_SIGNER_BUSY", "too many signatures are under way; try again later");
    }
    own.count += 1;
    all += 1;
    try {
      return await work();
    } finally {
      own.count -= 1;
      all -= 1;
    }
  };
}
