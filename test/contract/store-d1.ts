import type { DurableObjectState } from "../../src/rotation/store/databases/durable-object.ts";

// The backend of the D1 binding in workerd: one SQLite database, in a Durable Object. Its responses are like Cloudflare's.

interface Cursor extends Iterable<unknown> {
  readonly columnNames: readonly string[];
  raw(): Iterable<readonly unknown[]>;
}
interface Statement {
  readonly sql: string;
  readonly params?: (string | number | null)[];
}

export class Database {
  readonly #storage: DurableObjectState["storage"];
  /** Whether the next write is executed but its response is lost. */
  #losesResponse = false;

  constructor({ storage }: DurableObjectState) {
    this.#storage = storage;
  }

  #run({ sql, params = [] }: Statement): object {
    const exec = (text: string, values: typeof params): Cursor =>
      this.#storage.sql.exec(text, ...values) as unknown as Cursor;
    const cursor = exec(sql, params);
    const rows = [...cursor.raw()];
    const [[changes] = []] = [...exec("SELECT changes()", []).raw()];
    return { success: true, results: { columns: cursor.columnNames, rows }, meta: { changes, duration: 0 } };
  }

  async fetch(request: Request): Promise<Response> {
    if (request.method === "PUT") {
      this.#losesResponse = true;
      return new Response();
    }
    const statements = (await request.json()) as Statement[];
    try {
      const results = this.#storage.transactionSync(() => statements.map((statement) => this.#run(statement)));
      const isUpdate = statements.some(({ sql }) => sql.startsWith("UPDATE"));
      if (!this.#losesResponse || !isUpdate) return Response.json(results);
      this.#losesResponse = false;
      return new Response("Network connection lost.", { status: 500 });
    } catch (error) {
      return Response.json({ success: false, error: (error as Error).message });
    }
  }
}

interface Env {
  readonly DATABASE: {
    idFromName(name: string): object;
    get(id: object): { fetch(request: Request): Promise<Response> };
  };
}

export default {
  async fetch(request: Request, { DATABASE }: Env): Promise<Response> {
    // A replica may answer other requests.
    const isPrimary = request.headers.get("x-cf-d1-session-commit-token") === "first-primary";
    if (request.method !== "PUT" && !isPrimary) return new Response("", { status: 500 });
    return DATABASE.get(DATABASE.idFromName("one")).fetch(request);
  },
};
