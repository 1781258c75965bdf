import { pauseAfter } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { StoreError } from "../../../base/errors.ts";
import { issuerKey } from "../issuer.ts";
import type { DueIssuer, OpenRegister, Presence } from "../register.ts";
import { type Call, type Fault, callsTo } from "./calls.ts";

/** Placeholders are question marks. */
export type Statement = readonly [sql: string, ...values: (string | number | null)[]];

/** What a statement gives: columns that are text or numbers, and how many rows it has changed. */
export interface Answer {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  readonly changes: number;
}

export interface SqlFault extends Fault {
  /** Others were quicker, and nothing was done. */
  readonly isRace?: boolean | undefined;
  readonly isNoTable?: boolean | undefined;
}

/** A database that speaks SQL with question marks. */
export interface SqlDatabase {
  /** For messages: without user and password. */
  readonly name: string;
  readonly dialect: Dialect;
  /** Runs all in one transaction, on the primary. */
  readonly transact: (statements: readonly Statement[], signal: AbortSignal) => Promise<readonly Answer[]>;
  readonly faultOf: (error: unknown) => SqlFault;
}

export interface Dialect {
  /** Inserts a row unless its key is there. */
  readonly insert: "INSERT IGNORE" | "INSERT OR IGNORE";
  /** Columns that every read has: `now`, in epoch milliseconds, and `standby`, 1 where the server is not the primary. */
  readonly asked: string;
  /** Makes what is missing. */
  readonly schema: readonly string[];
  readonly maxBytes?: number | undefined;
}

const maxAttempts = 20;

/** Something that only the primary can write, in the transaction of a read. */
const word = (): Statement => [
  "REPLACE INTO jwksd_presence (issuer, id, line) VALUES ('', '', ?)",
  crypto.randomUUID(),
];

/** A register with all that it can have. */
export interface SqlRegister extends OpenRegister {
  readonly presence: Presence;
  readonly due: NonNullable<OpenRegister["due"]>;
}

export function sqlRegister(
  { name, dialect, transact, faultOf }: SqlDatabase,
  { issuer, timeoutMs = 5_000 }: { readonly issuer: string; readonly timeoutMs?: number | undefined },
): SqlRegister {
  const calls = callsTo(name, timeoutMs, faultOf);

  /** Again where others were quicker, and with tables where there are none. */
  async function attempt(statements: readonly Statement[], signal: AbortSignal): Promise<readonly Answer[]> {
    for (let count = 1; ; count += 1) {
      try {
        return await transact(statements, signal);
      } catch (error) {
        const { isRace, isNoTable } = faultOf(error);
        if (!(isRace || isNoTable) || count === maxAttempts) throw error;
        if (isNoTable)
          await attempt(
            dialect.schema.map((sql) => [sql] as const),
            signal,
          );
        else await pauseAfter(count, 500, systemClock, signal);
      }
    }
  }

  /** The answer to the last of the statements. */
  const run = (options: Call, ...statements: ((key: string) => Statement)[]): Promise<Answer> =>
    calls.run(async (signal) => {
      const key = await issuerKey(issuer);
      const answers = await attempt(
        statements.map((of) => of(key)),
        signal,
      );
      return answers.at(-1) as Answer;
    }, options);

  return {
    name,
    ...(dialect.maxBytes !== undefined && { maxBytes: dialect.maxBytes }),

    async read(known, { signal, confirmed = false } = {}) {
      const query = `SELECT ${dialect.asked}, version, CASE WHEN version = ? THEN NULL ELSE text END AS text
        FROM (SELECT 1 AS one) AS asked LEFT JOIN jwksd_documents ON issuer = ?`;
      const { rows } = await run({ signal, writes: false }, ...(confirmed ? [word] : []), (key) => [
        query,
        known ?? null,
        key,
      ]);
      const { version, text, now, standby } = rows[0] ?? {};
      if (Number(standby) === 1)
        throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} is read-only; name the primary`);
      return {
        ...(typeof version === "string" && { version }),
        ...(typeof text === "string" && { text }),
        ...(typeof now === "number" && { now }),
      };
    },

    async write(text, ifVersion, { signal, due } = {}) {
      const values = [crypto.randomUUID(), text, due === undefined ? null : Math.ceil(due)] as const;
      const first = `${dialect.insert} INTO jwksd_documents (version, text, due, issuer, name) VALUES (?, ?, ?, ?, ?)`;
      const next = "UPDATE jwksd_documents SET version = ?, text = ?, due = ? WHERE issuer = ? AND version = ?";
      const { changes } = await run({ signal, writes: true }, (key) =>
        ifVersion === undefined ? [first, ...values, key, issuer] : [next, ...values, key, ifVersion],
      );
      return changes > 0;
    },

    presence: {
      async put(id, line, { signal } = {}) {
        const sql = "REPLACE INTO jwksd_presence (issuer, id, line) VALUES (?, ?, ?)";
        await run({ signal, writes: true }, (key) => [sql, key, id, line]);
      },
      async all({ signal } = {}) {
        const sql = "SELECT id, line FROM jwksd_presence WHERE issuer = ?";
        const { rows } = await run({ signal, writes: false }, (key) => [sql, key]);
        return new Map(rows.map(({ id, line }) => [id as string, line as string]));
      },
      async drop(id, { signal } = {}) {
        const sql = "DELETE FROM jwksd_presence WHERE issuer = ? AND id = ?";
        await run({ signal, writes: true }, (key) => [sql, key, id]);
      },
    },

    async due(limit, after, { signal } = {}) {
      const from = after?.due ?? 0;
      const key = after?.key ?? "";
      // Not a parameter, which some servers refuse there.
      const sql = `SELECT name, due, issuer AS row_key FROM jwksd_documents WHERE due BETWEEN ? AND ? AND (due > ? OR issuer > ?)
        ORDER BY due, issuer LIMIT ${Math.floor(limit)}`;
      const now = systemClock.now();
      const { rows } = await run({ signal, writes: false }, () => [sql, from, now, from, key]);
      return rows.map((row): DueIssuer => ({
        issuer: String(row["name"]),
        due: Number(row["due"]),
        key: String(row["row_key"]),
      }));
    },

    close: async () => calls.close(),
  };
}
