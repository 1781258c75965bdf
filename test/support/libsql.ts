import { createServer } from "node:http";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import { json } from "node:stream/consumers";
import { listening } from "./listening.ts";

type Scope = Parameters<typeof listening>[0];
type Value = { readonly type: string; readonly value?: string | number };

interface Step {
  readonly condition?: Condition;
  readonly stmt: { readonly sql?: string; readonly sql_id?: number; readonly args?: readonly Value[] };
}
type Condition = { readonly type: "ok"; readonly step: number } | { readonly type: "not"; readonly cond: Condition };

interface Pipeline {
  readonly requests: readonly {
    type: string;
    sql_id: number;
    sql: string;
    batch: { readonly steps: readonly Step[] };
  }[];
}

/**
 * Starts a server in this process that speaks libSQL's protocol over HTTP, with an empty database in memory. It runs one batch at a time.
 *
 * @see https://github.com/tursodatabase/libsql/blob/main/docs/HRANA_2_SPEC.md
 */
export async function startLibsql(t: Scope): Promise<string> {
  const db = new DatabaseSync(":memory:");
  const server = createServer(async (request, response) => {
    const { requests } = (await json(request)) as Pipeline;
    const stored = new Map<number, string>();
    const results = requests.map(({ type, sql_id, sql, batch }) => {
      if (type === "store_sql") stored.set(sql_id, sql);
      const result = type === "batch" ? { result: run(db, batch.steps, stored) } : {};
      return { type: "ok", response: { type, ...result } };
    });
    response
      .setHeader("Content-Type", "application/json")
      .end(JSON.stringify({ baton: null, base_url: null, results }));
  });
  return `http://127.0.0.1:${await listening(t, server)}`;
}

function run(db: DatabaseSync, steps: readonly Step[], stored: ReadonlyMap<number, string>): object {
  const results: (object | null)[] = [];
  const errors: (object | null)[] = [];
  const holds = (condition: Condition): boolean =>
    condition.type === "not" ? !holds(condition.cond) : (results[condition.step] ?? null) !== null;
  for (const { condition, stmt } of steps) {
    let result: object | null = null;
    let error: object | null = null;
    try {
      if (condition === undefined || holds(condition)) result = execute(db, stmt, stored);
    } catch (thrown) {
      error = { message: `SQLite error: ${(thrown as Error).message}`, code: "SQLITE_UNKNOWN" };
    }
    results.push(result);
    errors.push(error);
  }
  return { step_results: results, step_errors: errors };
}

function execute(db: DatabaseSync, { sql, sql_id = 0, args = [] }: Step["stmt"], stored: ReadonlyMap<number, string>) {
  const statement = db.prepare(sql ?? stored.get(sql_id) ?? "");
  const names = statement.columns().map(({ name }) => name);
  const before = totalChanges(db);
  const rows = statement.all(...args.map(({ value = null }): SQLInputValue => value)) as Record<string, unknown>[];
  return {
    cols: names.map((name) => ({ name })),
    rows: rows.map((row) => names.map((name) => encoded(row[name]))),
    affected_row_count: totalChanges(db) - before,
    last_insert_rowid: null,
  };
}

const totalChanges = (db: DatabaseSync): number => Number(db.prepare("SELECT total_changes() AS n").get()?.["n"]);

function encoded(value: unknown): Value {
  if (typeof value === "number") return { type: "integer", value: `${value}` };
  return typeof value === "string" ? { type: "text", value } : { type: "null" };
}
