import type { Changed } from "./changed.ts";
import type { DocumentSet } from "./documents.ts";

/** Where documents are put that somebody else serves. */
export interface Target {
  /** What people call it. */
  readonly name: string;
  /**
   * Notes what is there. `put` replaces that and nothing newer, so whoever calls this before it asks the store for the keys never puts an
   * older set in the place of a newer one.
   *
   * @returns sentences for the operator, such as about permissions
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  open(): Promise<readonly string[]>;
  /** What is there of a document, as it was noted; `undefined` for nothing. */
  content(path: string): Promise<Uint8Array | undefined>;
  /**
   * Looks for what is not as it was published. Notes nothing.
   *
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  changed(documentSet: DocumentSet): Promise<readonly Changed[]>;
  /**
   * Puts the documents there, in their order, and nothing where it is there already. Whoever reads at any moment, also after a crash, finds
   * each document whole, and a JWK Set where the discovery document says.
   *
   * @param replaced found by `changed` before the store was asked for the keys; replaced, as what was noted is
   * @returns the paths that were written
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  put(documentSet: DocumentSet, replaced?: readonly Changed[]): Promise<readonly string[]>;
  close(): Promise<void>;
}
