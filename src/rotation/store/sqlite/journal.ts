import { readFileSync, realpathSync } from "node:fs";
import { StoreError } from "../../../base/errors.ts";

/** What a journal begins with, once it counts: before, nothing is written into the file. */
const magic = "d9d505f920a163d7";
const headerBytes = 28;
/** Where the first page of a file counts its writes. */
const counterAt = 24;

/**
 * A process that dies while it writes leaves a journal beside the file, with which SQLite then turns the file back. SQLite does so with any
 * file that it finds there, also with a backup that was put in the place of the one that the journal is of.
 *
 * @throws StoreError `ERR_STORE_FORMAT`: the journal is of another file
 */
export function checkJournal(path: string): void {
  const name = `${realpathSync(path)}-journal`;
  const journal = bytesOf(name);
  if (journal === undefined || journal.length < headerBytes || journal.toString("hex", 0, 8) !== magic) return;
  if (isOf(journal, readFileSync(path))) return;
  // If somebody is writing now, the file is that of a later journal. Each journal has a random number.
  if (!bytesOf(name)?.subarray(12, 16).equals(journal.subarray(12, 16))) return;
  throw new StoreError(
    "ERR_STORE_FORMAT",
    `${name} is an unfinished write into another file, which was at ${path} before; to use the file that is there now, delete ${name}`,
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
 * Whether the first page of a file is that of before an unfinished write, or that of after. Every write to a store changes the first page
 * first.
 *
 * @see https://sqlite.org/fileformat2.html#the_rollback_journal
 */
function isOf(journal: Buffer, file: Buffer): boolean {
  const [pages, start, pageSize] = [journal.readUInt32BE(16), journal.readUInt32BE(20), journal.readUInt32BE(24)];
  const written = file.length < headerBytes ? 0 : file.readUInt32BE(counterAt);
  // The file was empty, so there was no page before.
  if (pages === 0) return written <= 1;
  const record = journal.subarray(start, start + 4 + pageSize);
  if (record.length < 4 + pageSize || record.readUInt32BE(0) !== 1) return false;
  const before = record.subarray(4);
  return written === before.readUInt32BE(counterAt) + 1 || file.subarray(0, pageSize).equals(before);
}
