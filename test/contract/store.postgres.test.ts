import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { randomUUID } from "node:crypto";
import postgres from "postgres";
import pg from "pg";
import { type PostgresPool, type PostgresSql, postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import type { Register } from "../../src/rotation/store/index.ts";
import { type RegisterUnderTest, checkRegister } from "../../src/testing/register.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { networkFaults } from "../support/faults.ts";
import { skipWithout } from "../support/parts.ts";
import { type PostgresServer, startPgBouncer, startPostgres } from "../support/postgres.ts";
import { sample } from "../support/samples.ts";

const skip = skipWithout("initdb", "pgbouncer");

/** How a process reaches the database, and what ends it. */
interface Way {
  readonly database: string | PostgresPool | PostgresSql;
  readonly end?: () => Promise<unknown>;
}

const byUrl = (url: string): Way => ({ database: url });
function byPool(url: string): Way {
  const pool = new pg.Pool({ connectionString: url });
  return { database: pool, end: () => pool.end() };
}
function byPostgresJs(url: string): Way {
  const sql = postgres(url, { max: 5, fetch_types: false });
  return { database: sql, end: () => sql.end({ timeout: 1 }) };
}

if (skip === false) {
  let server: PostgresServer;
  let bouncer: Awaited<ReturnType<typeof startPgBouncer>>;
  before(async () => {
    server = await startPostgres();
    bouncer = await startPgBouncer(server);
    server.sql("CREATE DATABASE serializable");
    server.sql("ALTER DATABASE serializable SET default_transaction_isolation = 'serializable'");
  });
  after(async () => {
    await bouncer.stop();
    await server.stop();
  });

  interface Under extends RegisterUnderTest {
    readonly network: Cuttable;
  }

  const faults = networkFaults("UPDATE");

  const places: [name: string, way: (url: string) => Way, port: () => number, database: string][] = [
    ["postgres", byUrl, () => server.port, "postgres"],
    ["postgres, a pool of the package pg", byPool, () => server.port, "postgres"],
    ["postgres, an instance of the package postgres", byPostgresJs, () => server.port, "postgres"],
    ["postgres, through PgBouncer in transaction mode", byUrl, () => bouncer.port, "postgres"],
    ["postgres, the package postgres through PgBouncer", byPostgresJs, () => bouncer.port, "postgres"],
    ["postgres, at SERIALIZABLE", byUrl, () => server.port, "serializable"],
  ];
  for (const [name, way, port, database] of places) {
    const open = async (): Promise<Under> => {
      const network = await cuttable(port());
      const url = `postgres://postgres@127.0.0.1:${network.port}/${database}`;
      // Others in the same database are in nobody's way.
      const run = randomUUID();
      const ways: Way[] = [];
      return {
        network,
        async handle(issuer) {
          const opened = way(url);
          ways.push(opened);
          return postgresStore(opened.database, { issuer: `${issuer}#${run}`, timeoutMs: 3_000 });
        },
        async end() {
          for (const opened of ways) await opened.end?.();
          await network.close();
        },
      };
    };
    // How a package tells of them, and not where the server is.
    checkRegister(name, open, database === "postgres" && !name.includes("PgBouncer") ? faults : {});
  }

  test("the store of docs/store-postgres.md", async (t) => {
    const path = await sample(t, "examples/docs/postgres.mts", { "postgres://jwksd@db.example/jwksd": server.url() });
    const { store } = (await import(path)) as { store: Register };
    t.after(() => store.close?.());
    assert.equal((await store.read()).version, undefined);
  });
}
