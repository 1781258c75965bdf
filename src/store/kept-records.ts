import { quoted } from "./check.ts";
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
  readonly parsed: KeyRecord;
  readonly position: number;
}

/**
 * The records of a store, each parsed once for as long as its text is the same: nearly all records of an old store are tombstones. They
 * are frozen, so that all who load can share them.
 */
export class KeptRecords {
  #kept = new Map<string, Kept>();

  get records(): readonly KeyRecord[] {
    return Array.from(this.#kept.values(), ({ parsed }) => parsed);
  }

  get kids(): Iterable<string> {
    return this.#kept.keys();
  }

  /** What has to be written so that the store holds these records, none of which it forgets. */
  changesTo(records: readonly KeyRecord[]): readonly RecordChange[] {
    let end = this.#kept.size;
    return records.flatMap((record): RecordChange[] => {
      const kid = quoted(record.kid);
      const kept = this.#kept.get(kid);
      if (kept?.parsed === record) return [];
      const text = JSON.stringify(record);
      if (kept?.text === text) return [];
      const parsed = frozen(JSON.parse(text)) as KeyRecord;
      return [{ kid, record: text, parsed, position: kept?.position ?? end++, isNew: kept === undefined }];
    });
  }

  /** After they have been written. */
  apply(changes: readonly RecordChange[]): void {
    for (const { kid, record, parsed, position } of changes) this.#kept.set(kid, { text: record, parsed, position });
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
    const read = new Map<string, Kept>();
    let end = this.#kept.size;
    for (const [position, kid, text] of rows) {
      const where = (): Error => damaged(`record ${position + 1}`);
      // Each at its place, or somebody has moved them.
      if (position !== (this.#kept.get(kid)?.position ?? end++) || read.has(kid)) throw where();
      read.set(kid, { text, parsed: parseRecord(text, kid, where), position });
    }
    for (const [kid, kept] of read) this.#kept.set(kid, kept);
  }

  /**
   * Takes rows, which somebody else may have written, in the place of all records.
   *
   * @param damaged the error for a record by its name, such as `record 3`
   */
  read(rows: readonly RecordRow[], damaged: (name: string) => Error): void {
    const read = rows.map(({ kid, record: text }, position): [string, Kept] => {
      const kept = this.#kept.get(kid);
      const isSame = kept?.text === text;
      const parsed = isSame ? kept.parsed : parseRecord(text, kid, () => damaged(`record ${position + 1}`));
      return [kid, { text, parsed, position }];
    });
    this.#kept = new Map(read);
  }
}

function parseRecord(text: string, kid: string, damaged: () => Error): KeyRecord {
  const record = parseObject(text, damaged) as KeyRecord;
  if (quoted(record.kid) !== kid) throw damaged();
  return frozen(record);
}

/** An object of JSON; its text, which may hold a wrapped key, is in no error. */
export function parseObject(text: string, damaged: () => Error): object {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Not the cause: it would show the text.
  }
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
