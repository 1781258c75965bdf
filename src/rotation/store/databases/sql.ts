import { pauseAfter } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { StoreError } from "../../../base/errors.ts";
import { maxBytesOf } from "../bounds.ts";
import { issuerKey } from "../issuer.ts";
import type { DueIssuer, OpenRegister, Presence } from "../register.ts";
import { type Call, type Fault, callsTo } from "./calls.ts";

export type Value = string | number | null;
export type Statement = readonly [sql: string, ...values: Value[]];

/** What a statement gives: columns that are text or numbers, and how many rows it has changed. */
export interface Answer {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  readonly changes: number;
}

/** Reports whether a read was answered by a server that is not the primary. */
export const isOfStandby = ({ rows }: Answer): boolean => Number(rows[0]?.["standby"]) === 1;

export interface SqlFault extends Fault {
  /** Others were quicker, and nothing was done. */
  readonly isRace?: boolean | undefined;
  readonly isNoTable?: boolean | undefined;
}

/** A row of the documents. */
export interface Row {
  /** What names the issuer in the tables. */
  readonly key: string;
  readonly issuer: string;
  readonly version: string;
  readonly text: string;
  readonly due: number | null;
}

/** How a database says what a register does. Of several statements, which are one transaction, the last one answers. */
export interface Statements {
  /**
   * Columns: `now`, in epoch milliseconds; `standby`, 1 where the server is not the primary; `version`, and `text` unless its version is known.
   */
  read(key: string, known: string | null, confirmed: boolean): readonly Statement[];
  /** The same where there are no tables yet. Missing where who reads makes them. */
  readonly readNothing?: (confirmed: boolean) => readonly Statement[];
  first(row: Row): Statement;
  next(row: Row, ifVersion: string): Statement;
  put(key: string, id: string, record: string): Statement;
  /** Columns: `id`, `line`, and in each row `count`, the number of all records. @see Presence */
  list(key: string, limit: number): Statement;
  drop(key: string, id: string): Statement;
  /** Columns: `name`, `due`, `row_key`. Due by now, after a row, in the order of both. */
  due(now: number, after: { readonly due: number; readonly key: string }, limit: number): Statement;
  /** Makes what is missing. */
  readonly schema: readonly string[];
}

/** A database that speaks SQL. */
export interface SqlDatabase {
  /** For messages: without user and password. */
  readonly name: string;
  readonly statements: Statements;
  /** Default: as much as is read. */
  readonly maxBytes?: number | undefined;
  /** Runs all in one transaction, on the primary. */
  readonly transact: (statements: readonly Statement[], signal: AbortSignal) => Promise<readonly Answer[]>;
  readonly faultOf: (error: unknown) => SqlFault;
  /** Tells others of a write. */
  readonly onWritten?: () => void;
}

const maxAttempts = 20;

/** A register with all that it can have. */
export interface SqlRegister extends OpenRegister {
  readonly presence: Presence;
  readonly due: NonNullable<OpenRegister["due"]>;
}

export function sqlRegister(
  { name, statements, maxBytes = maxBytesOf.document, transact, faultOf, onWritten }: SqlDatabase,
  { issuer, timeoutMs = 5_000 }: { readonly issuer: string; readonly timeoutMs?: number | undefined },
): SqlRegister {
  const calls = callsTo(name, timeoutMs, faultOf);

  async function makeTables(signal: AbortSignal): Promise<void> {
    const schema = statements.schema.map((sql) => [sql] as const);
    await attempt(schema, signal).catch((error: unknown) => {
      // Not refused as what this process may not write: nobody could.
      throw calls.unavailable(error);
    });
  }

  /** Again where others were quicker. Where there are no tables, makes them, or answers otherwise. */
  async function attempt(
    asked: readonly Statement[],
    signal: AbortSignal,
    otherwise?: readonly Statement[],
  ): Promise<readonly Answer[]> {
    for (let count = 1; ; count += 1) {
      try {
        return await transact(asked, signal);
      } catch (error) {
        const { isRace, isNoTable } = faultOf(error);
        if (isNoTable && otherwise !== undefined) return attempt(otherwise, signal);
        if (!(isRace || isNoTable) || count === maxAttempts) throw error;
        if (isNoTable) await makeTables(signal);
        else await pauseAfter(count, 500, systemClock, signal);
      }
    }
  }

  const ask = (asked: (key: string) => readonly Statement[], options: Call, otherwise?: readonly Statement[]) =>
    calls.run(async (signal): Promise<Answer> => {
      const answers = await attempt(asked(await issuerKey(issuer)), signal, otherwise);
      return answers.at(-1) ?? { rows: [], changes: 0 };
    }, options);

  /** Nothing is listed where there are no tables. */
  const list = (asked: (key: string) => Statement, signal: AbortSignal | undefined): Promise<Answer> =>
    ask((key) => [asked(key)], { signal, writes: false }, statements.readNothing && []);

  const change = (asked: (key: string) => readonly Statement[], signal: AbortSignal | undefined): Promise<Answer> =>
    ask(asked, { signal, writes: true });

  return {
    name,
    maxBytes,

    async read(known, { signal, confirmed = false } = {}) {
      const answer = await ask(
        (key) => statements.read(key, known ?? null, confirmed),
        { signal, writes: false },
        statements.readNothing?.(confirmed),
      );
      const { version, text, now } = answer.rows[0] ?? {};
      if (isOfStandby(answer))
        throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} is a standby, or read-only; name the primary`);
      return {
        ...(typeof version === "string" && { version }),
        ...(typeof text === "string" && { text }),
        ...((now ?? undefined) !== undefined && { now: Number(now) }),
      };
    },

    async write(text, ifVersion, { signal, due } = {}) {
      const version = crypto.randomUUID();
      const { changes } = await change((key) => {
        const row = { key, issuer, version, text, due: due === undefined ? null : Math.ceil(due) };
        return [ifVersion === undefined ? statements.first(row) : statements.next(row, ifVersion)];
      }, signal);
      if (changes > 0) onWritten?.();
      return changes > 0;
    },

    presence: {
      async put(id, record, { signal } = {}) {
        await change((key) => [statements.put(key, id, record)], signal);
      },
      async list(limit, { signal } = {}) {
        const { rows } = await list((key) => statements.list(key, Math.floor(limit)), signal);
        const records = new Map(rows.map(({ id, line }) => [id as string, line as string]));
        return { records, count: Number(rows[0]?.["count"] ?? 0) };
      },
      async drop(ids, { signal } = {}) {
        await change((key) => ids.map((id) => statements.drop(key, id)), signal);
      },
    },

    async due(limit, after = { issuer: "", due: 0, key: "" }, { signal } = {}) {
      const { rows } = await list(() => statements.due(systemClock.now(), after, Math.floor(limit)), signal);
      return rows.map((row): DueIssuer => ({
        issuer: String(row["name"]),
        due: Number(row["due"]),
        key: String(row["row_key"]),
      }));
    },

    close: async () => calls.close(),
  };
}
