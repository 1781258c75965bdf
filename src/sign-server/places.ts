import { SignerError } from "../errors.ts";

/** Signatures under way at once. */
const limits = { all: 1_024, ofOne: 64 } as const;

/** Counts signatures under way. One connection that pipelines without end gets few places, so the others get theirs. */
export function createPlaces() {
  const taken = new WeakMap<object, { count: number }>();
  let all = 0;
  /**
   * Takes a place of a connection, and gives the function that frees it.
   *
   * @throws SignerError `ERR_SIGNER_BUSY`
   */
  return (connection: object): (() => void) => {
    let own = taken.get(connection);
    if (own === undefined) taken.set(connection, (own = { count: 0 }));
    const { count } = own;
    if (count >= limits.ofOne || all >= limits.all) {
      throw new SignerError("ERR_SIGNER_BUSY", "too many signatures are under way; try again later");
    }
    own.count += 1;
    all += 1;
    return () => {
      own.count -= 1;
      all -= 1;
    };
  };
}
