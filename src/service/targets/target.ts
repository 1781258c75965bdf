import type { DocumentSet } from "./documents.ts";
import type { ChangedFile } from "./overwrite-check.ts";

/** A folder or bucket whose content a web server or CDN serves. */
export interface Target {
  /** Name of the target, for messages and the list of replicas. */
  readonly name: string;
  /**
   * Records the target's files. `put` replaces only recorded files, not newer ones. A caller that opens the target
   * before it reads the keys from the store therefore never replaces a newer set with an older one.
   *
   * @returns warnings for the operator, for example about permissions
   * @throws IoError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  open(): Promise<readonly string[]>;
  /** Returns the recorded content of a document, or `undefined` if there was none. */
  content(path: string): Promise<Uint8Array | undefined>;
  /**
   * Finds files that differ from the published files. Records nothing.
   *
   * @throws IoError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  changed(documentSet: DocumentSet): Promise<readonly ChangedFile[]>;
  /**
   * Writes the documents that the target does not have yet, in order. At any moment, even after a crash, each document
   * is complete, and the URL in the discovery document returns a JWK Set.
   *
   * @param replaced files that `changed` found before the keys were read from the store; they are replaced like
   * recorded files
   * @returns the paths of the written documents
   * @throws IoError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`
   */
  put(documentSet: DocumentSet, replaced?: readonly ChangedFile[]): Promise<readonly string[]>;
  close(): Promise<void>;
}
