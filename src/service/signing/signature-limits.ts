import { SignerError, codeOf } from "../../base/errors.ts";
import type { Audit } from "./audit.ts";

/** Signatures under way at once. */
const limits = { all: 1_024, ofOne: 64 } as const;

/** Limits signatures under way. One connection that pipelines without end leaves room for the others. */
export function limitSignatures(audit: Audit) {
  const taken = new WeakMap<object, { count: number }>();
  let all = 0;

  async function limited<T>(connection: object, work: () => Promise<T>): Promise<T> {
    const own = taken.get(connection) ?? { count: 0 };
    taken.set(connection, own);
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
  }

  /**
   * Signs for a connection, and counts what becomes of it.
   *
   * @throws SignerError `ERR_SIGNER_BUSY`, and what `work` throws
   */
  return async <T>(connection: object, work: () => Promise<T>): Promise<T> => {
    try {
      const signed = await limited(connection, work);
      audit.count();
      return signed;
    } catch (error) {
      audit.count(codeOf(error));
      throw error;
    }
  };
}
