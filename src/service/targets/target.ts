import type { ChangedFile } from "./changed.ts";
import type { DocumentSet } from "./documents.ts";

/** A folder or bucket whose content somebody else serves. */
export interface Target {
  /** The name in messages and among replicas. */
  readonly name: string;
  /**
   * Notes the files of the target. `put` replaces the files that were noted, and none that is newer. A caller that opens the target before the
   * store gives it the keys never replaces a newer set by an older one.
   *
   * @returns sentences for the operator, such as about permissions
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  open(): Promise<readonly string[]>;
  /** The noted content of a document; `undefined` where there was none. */
  content(path: string): Promise<Uint8Array | undefined>;
  /**
   * Finds files that are not as they were published. Notes nothing.
   *
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  changed(documentSet: DocumentSet): Promise<readonly ChangedFile[]>;
  /**
   * Writes the documents that the target does not have yet, in their order. A reader at any moment, also after a crash, finds each document
   * whole, and a JWK Set where the discovery document says.
   *
   * @param replaced found by `changed` before the store was asked for the keys; replaced, as what was noted is
   * @returns the paths that were written
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  put(documentSet: DocumentSet, replaced?: readonly ChangedFile[]): Promise<readonly string[]>;
  close(): Promise<void>;
}
