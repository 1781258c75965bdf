import { StoreError } from "../../base/errors.ts";
import { jsonOf } from "../../base/json.ts";
import { quoted } from "./check.ts";
import { changedRecords } from "./changed-records.ts";
import type { KeyRecord } from "./store.ts";

/** A record as stores keep it that keep text; `kid` is {@link quoted}. */
export interface RecordRow {
  readonly kid: string;
  readonly record: string;
}

/** What a commit changes. */
export interface RecordChange extends RecordRow {
  readonly parsed: KeyRecord;
  /** Where it is among all records, counted from 0. */
  readonly position: number;
  readonly isNew: boolean;
}

interface Kept {
  readonly text: string;
  readonly position: number;
}

/**
 * The records of a store, each parsed once for as long as its text is the same: nearly all records of an old store are tombstones. They
 * are frozen, so that all who load can share them.
 */
export class KeptRecords {
  #records: readonly KeyRecord[] = [];
  /** By kid, {@link quoted}. */
  #kept = new Map<string, Kept>();

  get records(): readonly KeyRecord[] {
    // Arrays that are frozen are slow to go through.
    return [...this.#records];
  }

  /**
   * What has to be written so that the store holds these records.
   *
   * @throws StoreError `ERR_RECORDS_INVALID`: a kept record is missing among them, or two share a kid
   */
  changesTo(records: readonly KeyRecord[]): readonly RecordChange[] {
    const before = this.#records;
    const given = changedRecords(records, before);
    const kids = new Set(given.map(({ kid }) => quoted(kid)));
    const left = changedRecords(before, records);
    const missing = left.find(({ kid }) => !kids.has(quoted(kid)));
    if (missing !== undefined) {
      throw new StoreError(
        "ERR_RECORDS_INVALID",
        `the record of kid ${quoted(missing.kid)} is missing; no record is ever forgotten, so nothing was written`,
      );
    }
    const isLeft = (kid: string): boolean => {
      const { position } = this.#kept.get(kid) ?? {};
      return position === undefined || records[position] !== before[position];
    };
    if (kids.size < given.length || ![...kids].every(isLeft)) {
      throw new StoreError("ERR_RECORDS_INVALID", "two of the records share a kid; nothing was written");
    }
    let end = before.length;
    return given.flatMap((record): RecordChange[] => {
      const kid = quoted(record.kid);
      const kept = this.#kept.get(kid);
      const text = JSON.stringify(record);
      if (kept?.text === text) return [];
      const parsed = frozen(JSON.parse(text)) as KeyRecord;
      return [{ kid, record: text, parsed, position: kept?.position ?? end++, isNew: kept === undefined }];
    });
  }

  /** After they have been written. */
  apply(changes: readonly Omit<RecordChange, "isNew">[]): void {
    if (changes.length === 0) return;
    const records = [...this.#records];
    for (const { kid, record: text, parsed, position } of changes) {
      records[position] = parsed;
      this.#kept.set(kid, { text, position });
    }
    this.#records = records;
  }

  /**
   * Takes rows that have changed, with their positions; new ones are at the end.
   *
   * @param damaged as of {@link read}
   */
  update(
    rows: readonly (readonly [position: number, kid: string, text: string])[],
    damaged: (name: string) => Error,
  ): void {
    const kids = new Set<string>();
    let end = this.#records.length;
    const changes = rows.map(([position, kid, record]) => {
      const where = (): Error => damaged(`record ${position + 1}`);
      // Each at its place, or somebody has moved them.
      if (position !== (this.#kept.get(kid)?.position ?? end++) || kids.has(kid)) throw where();
      kids.add(kid);
      return { kid, record, parsed: parseRecord(record, kid, where), position };
    });
    this.apply(changes);
  }

  /**
   * Takes rows, which somebody else may have written, in the place of all records.
   *
   * @param damaged the error for a record by its name, such as `record 3`
   */
  read(rows: readonly RecordRow[], damaged: (name: string) => Error): void {
    const records = rows.map(({ kid, record: text }, position): KeyRecord => {
      const kept = this.#kept.get(kid);
      if (kept?.text === text) return this.#records[kept.position] as KeyRecord;
      return parseRecord(text, kid, () => damaged(`record ${position + 1}`));
    });
    this.#kept = new Map(rows.map(({ kid, record: text }, position) => [kid, { text, position }]));
    this.#records = records;
  }
}

function parseRecord(text: string, kid: string, damaged: () => Error): KeyRecord {
  const record = parseObject(text, damaged) as KeyRecord;
  if (quoted(record.kid) !== kid) throw damaged();
  return frozen(record);
}

/** An object of JSON; its text, which may hold a wrapped key, is in no error. */
export function parseObject(text: string, damaged: () => Error): object {
  const value = jsonOf(text);
  if (typeof value !== "object" || value === null) throw damaged();
  return value;
}

function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    for (const member of Object.values(value)) frozen(member);
    Object.freeze(value);
  }
  return value;
}
