import { readFileSync, realpathSync } from "node:fs";
import { StoreError } from "../../../base/errors.ts";

/** First bytes of a valid journal. Until they are written, the database file is unchanged. */
const magic = "d9d505f920a163d7";
const headerBytes = 28;
/** Offset of the write counter in a file's first page. */
const counterAt = 24;

/**
 * Checks that a journal belongs to its file. If a process dies during a write, it leaves a journal next to the file,
 * and SQLite later uses the journal to roll the file back. SQLite does that to any file at that path, even to a backup
 * that has replaced the original.
 *
 * @throws StoreError `ERR_STORE_FORMAT` if the journal belongs to a different file
 */
export function checkJournal(path: string): void {
  const name = `${realpathSync(path)}-journal`;
  const journal = bytesOf(name);
  if (journal === undefined || journal.length < headerBytes || journal.toString("hex", 0, 8) !== magic) return;
  if (belongsTo(journal, readFileSync(path))) return;
  // If another process is writing at the moment, the file belongs to a later journal. Each journal contains a random
  // number.
  if (!bytesOf(name)?.subarray(12, 16).equals(journal.subarray(12, 16))) return;
  throw new StoreError(
    "ERR_STORE_FORMAT",
    `${name} contains an unfinished write to a different file that used to be at ${path}; to use the current file, delete ${name}`,
  );
}

function bytesOf(name: string): Buffer | undefined {
  try {
    return readFileSync(name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/**
 * Reports whether a file's first page is consistent with an unfinished write: it has either the content from before the
 * write or the write counter from after the write. Every write to a store changes the first page before any other.
 *
 * @see https://sqlite.org/fileformat2.html#the_rollback_journal
 */
function belongsTo(journal: Buffer, file: Buffer): boolean {
  const [pages, start, pageSize] = [journal.readUInt32BE(16), journal.readUInt32BE(20), journal.readUInt32BE(24)];
  const written = file.length < headerBytes ? 0 : file.readUInt32BE(counterAt);
  // The file was empty before the write, so there is no old page.
  if (pages === 0) return written <= 1;
  const record = journal.subarray(start, start + 4 + pageSize);
  if (record.length < 4 + pageSize || record.readUInt32BE(0) !== 1) return false;
  const before = record.subarray(4);
  return written === before.readUInt32BE(counterAt) + 1 || file.subarray(0, pageSize).equals(before);
}
