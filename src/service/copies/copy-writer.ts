import type { ChangedFile } from "./changed.ts";
import { type DocumentSet, baseOf } from "./documents.ts";
import { readBack } from "./read-back.ts";
import type { Target } from "./target.ts";

/** The documents that a target has, after they were read back. */
export interface Published {
  readonly documentSet: DocumentSet;
  /** Paths that were written; none where the target had all documents already. */
  readonly written: readonly string[];
}

export interface CopyOptions {
  readonly target: Target;
  /** The URL under which the documents can be read from outside. */
  readonly verifyUrl: string;
  /** Clears the caches in front of the target, after something was written. */
  readonly purge: () => Promise<void>;
  readonly onPublished: (published: Published) => void;
  /** Aborts the reads. */
  readonly signal: AbortSignal;
}

/** Makes a function that writes documents to a target, and reads them back from outside. One call at a time. */
export function createCopyWriter({ target, verifyUrl, purge, onPublished, signal }: CopyOptions) {
  let written: string[] = [];
  let isPurged = true;
  /**
   * Resolves when a read from outside, past caches, finds these documents. After a failure, the next call goes on where this one ended.
   *
   * @param replaced see `Target.put`
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`, `ERR_PURGE`, `ERR_NOT_SERVED`
   */
  return async (documentSet: DocumentSet, replaced?: readonly ChangedFile[]): Promise<void> => {
    const paths = await target.put(documentSet, replaced);
    if (paths.length > 0) isPurged = false;
    written = [...new Set([...written, ...paths])];
    if (!isPurged) await purge();
    isPurged = true;
    await readBack(baseOf(verifyUrl), documentSet.documents, signal);
    onPublished({ documentSet, written });
    written = [];
  };
}
