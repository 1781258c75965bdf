import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { type PostgresStores, postgresStores } from "../../src/rotation/store/postgres/postgres.ts";
import type { KeyStore } from "../../src/rotation/store/index.ts";
import { skipWithout } from "../support/parts.ts";
import { type PostgresServer, startPgBouncer, startPostgres } from "../support/postgres.ts";
import { sample } from "../support/samples.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type StoreUnderTest, checkStore } from "../../src/testing/store.ts";

const skip = skipWithout("initdb", "pgbouncer");

if (skip === false) {
  let server: PostgresServer;
  let bouncer: Awaited<ReturnType<typeof startPgBouncer>>;
  before(async () => {
    server = await startPostgres();
    bouncer = await startPgBouncer(server);
    server.sql("CREATE DATABASE serializable");
    server.sql("ALTER DATABASE serializable SET default_transaction_isolation = 'serializable'");
    server.sql("CREATE DATABASE repeatable");
    server.sql("ALTER DATABASE repeatable SET default_transaction_isolation = 'repeatable read'");
  });
  after(async () => {
    await bouncer.stop();
    await server.stop();
  });

  const places: [name: string, url: () => string][] = [
    ["postgres", () => server.url()],
    ["postgres, through PgBouncer in transaction mode", () => bouncer.url()],
    ["postgres, at SERIALIZABLE", () => server.url("serializable")],
    ...(isSoak ? [["postgres, at REPEATABLE READ", () => server.url("repeatable")] as [string, () => string]] : []),
  ];
  for (const [name, url] of places) {
    // Handles of one store are of two processes, as it were, by turns.
    const pools: PostgresStores[] = [];
    let handles = 0;
    after(async () => {
      for (const pool of pools) await pool.close();
    });
    const open = async (): Promise<StoreUnderTest> => {
      // Others in the same database are in nobody's way.
      const issuer = `https://${randomUUID()}.example`;
      return {
        async handle() {
          const place = handles++ % 2;
          return (pools[place] ??= await postgresStores(url())).store(issuer);
        },
      };
    };
    checkStore(name, open, soak(50));
  }

  test("the store of docs/store-postgres.md", async (t) => {
    const path = await sample(t, "examples/docs/postgres.mts", { "postgres://jwksd@db.example/jwksd": server.url() });
    const { database, store } = (await import(path)) as { database: PostgresStores; store: KeyStore };
    t.after(() => database.close());
    assert.equal((await store.load()).records.length, 0);
  });
}
