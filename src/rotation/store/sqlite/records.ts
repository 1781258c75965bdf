import type { StoreError } from "../../../base/errors.ts";
import { KeptRecords, type RecordChange, type RecordRow } from "../kept-records.ts";
import type { SqliteFile } from "./file.ts";

interface ReadAt {
  /** Times that the file was opened, and what its `version()` was. */
  readonly opened: number;
  readonly version: number;
  readonly revision: number;
  /** The id of that revision: its history is the one whose changes can be read. */
  readonly commit: string | undefined;
}

interface ChangedRow extends RecordRow {
  readonly position: number;
}

/** The records of a file. Of a commit by others, only what it has changed is read. */
export function sqliteRecords(damaged: (name: string) => StoreError) {
  const kept = new KeptRecords();
  let at: ReadAt = { opened: 0, version: 0, revision: 0, commit: undefined };
  return {
    /** Those at a revision, in a transaction that has begun to read at it. */
    read(file: SqliteFile, opened: number, revision: number): KeptRecords {
      const [before, version] = [at, file.version()];
      if (before.opened === opened && before.version === version) return kept;
      const commit = commitOf(file, revision);
      // Whoever has changed the file without a commit may have changed anything, so then all is read.
      const isLater = before.opened === opened && revision > before.revision && commit !== undefined;
      if (isLater && before.commit !== undefined && commitOf(file, before.revision) === before.commit) {
        const rows = file.statements.changedRecords.all(before.revision) as unknown as ChangedRow[];
        const changed = rows.map(({ position, kid, record }) => [position, kid, record] as const);
        kept.update(changed, damaged);
      } else {
        kept.read(file.statements.records.all() as unknown as RecordRow[], damaged);
      }
      at = { opened, version, revision, commit };
      return kept;
    },

    /** After a commit of one's own, of which the file's `version()` does not tell. */
    committed(changes: readonly RecordChange[], revision: number, commit: string): void {
      kept.apply(changes);
      at = { ...at, revision, commit };
    },
  };
}

function commitOf({ statements }: SqliteFile, revision: number): string | undefined {
  return (statements.commit.get(revision) as { id: string } | undefined)?.id;
}
