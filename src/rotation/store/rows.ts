import { StoreError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import type { KeyRecord } from "./store.ts";

/** A record as text, for stores in databases. */
export interface RecordRow {
  /** As a JSON string: a kid may hold characters that stores, or their drivers, cut off or refuse, such as U+0000. */
  readonly kid: string;
  readonly record: string;
}

/** A row to write, and its place among all records, counted from 0. */
export interface PlacedRow extends RecordRow {
  readonly position: number;
}

const quoted = (kid: string): string => JSON.stringify(kid);

/**
 * The records of rows, which somebody else may have written.
 *
 * @param damaged the error for a record by its name, such as `record 3`
 */
export function recordsIn(rows: readonly RecordRow[], damaged: (name: string) => Error): KeyRecord[] {
  return rows.map(({ kid, record: text }, index) => {
    const fault = (): Error => damaged(`record ${index + 1}`);
    const record = parseObject(text, fault) as KeyRecord;
    if (quoted(record.kid) !== kid) throw fault();
    return record;
  });
}

/**
 * The rows to write so that a store holds these records: those that have changed keep their places, new ones follow all others.
 *
 * @param stored all rows of the store, in order
 * @throws StoreError `ERR_RECORDS_INVALID`: a stored record is missing among the records, or two share a kid
 */
export function rowsToWrite(stored: readonly RecordRow[], records: readonly KeyRecord[]): PlacedRow[] {
  const given = new Map(records.map((record) => [quoted(record.kid), JSON.stringify(record)]));
  if (given.size < records.length) {
    throw new StoreError("ERR_RECORDS_INVALID", "two of the records share a kid; nothing was written");
  }
  const changed = stored.flatMap(({ kid, record: before }, position): PlacedRow[] => {
    const record = given.get(kid);
    if (record === undefined) {
      throw new StoreError(
        "ERR_RECORDS_INVALID",
        `the record of kid ${kid} is missing; no record is ever forgotten, so nothing was written`,
      );
    }
    given.delete(kid);
    return record === before ? [] : [{ kid, record, position }];
  });
  const added = [...given].map(([kid, record], index) => ({ kid, record, position: stored.length + index }));
  return [...changed, ...added];
}

/** An object of JSON; its text, which may hold a wrapped key, is in no error. */
export function parseObject(text: string, damaged: () => Error): object {
  const value = jsonOf(text);
  if (typeof value !== "object" || value === null) throw damaged();
  return value;
}
