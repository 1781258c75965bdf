import type { Changed } from "./changed.ts";
import { type Publication, baseOf } from "./documents.ts";
import { readBack } from "./read-back.ts";
import type { Target } from "./target.ts";

/** What became of a publication. */
export interface Published {
  readonly publication: Publication;
  /** What was written; nothing where it was there already. */
  readonly written: readonly string[];
}

export interface CopyOptions {
  readonly target: Target;
  /** The URL under which the documents can be read from outside. */
  readonly verifyUrl: string;
  /** Clears the caches in front of the target, after something was written. Default: nothing does. */
  readonly purge?: (() => Promise<void>) | undefined;
  readonly onPublished?: ((published: Published) => void) | undefined;
}

/** Makes a function that writes a publication to a target, and reads it back from outside. One call at a time. */
export function createCopyWriter({ target, verifyUrl, purge, onPublished }: CopyOptions) {
  let written: string[] = [];
  let isPurged = true;
  /**
   * Resolves when whoever reads from outside, past caches, finds these documents. What has been done stays done if it fails, so trying
   * again goes on from there.
   *
   * @param replaced see `Target.put`
   * @throws ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`, `ERR_PURGE`, `ERR_NOT_SERVED`
   */
  return async (publication: Publication, replaced?: readonly Changed[]): Promise<void> => {
    const paths = await target.put(publication, replaced);
    if (paths.length > 0) isPurged = false;
    written = [...new Set([...written, ...paths])];
    if (!isPurged) await purge?.();
    isPurged = true;
    await readBack(baseOf(verifyUrl), publication.documents);
    onPublished?.({ publication, written });
    written = [];
  };
}
