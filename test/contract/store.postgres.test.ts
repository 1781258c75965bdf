import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { decodeProtectedHeader } from "jose";
import pg from "pg";
import postgres from "postgres";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import { type Open, checkSample, checkWays, networkFaults, throughNetwork } from "../support/faults.ts";
import { newWrappingKey } from "../support/managed.ts";
import { skipWithout } from "../support/parts.ts";
import { type PostgresServer, startPgBouncer, startPostgres } from "../support/postgres.ts";
import { runSample, sample } from "../support/samples.ts";

const skip = skipWithout("initdb", "pgbouncer");

/** A function that opens a store in a database. */
type Way = (url: string, options: Parameters<Open>[1], ends: Parameters<Open>[2]) => ReturnType<Open>;

const byUrl: Way = (url, options) => postgresStore(url, options);
const byPool: Way = (url, options, ends) => {
  const pool = new pg.Pool({ connectionString: url });
  ends.push(() => pool.end());
  return postgresStore(pool, options);
};
const byPostgresJs: Way = (url, options, ends) => {
  const sql = postgres(url, { max: 5, fetch_types: false });
  ends.push(() => sql.end({ timeout: 1 }));
  return postgresStore(sql, options);
};

if (skip === false) {
  let server: PostgresServer;
  let bouncer: Awaited<ReturnType<typeof startPgBouncer>>;
  before(async () => {
    server = await startPostgres();
    bouncer = await startPgBouncer(server);
  });
  after(async () => {
    await bouncer.stop();
    await server.stop();
  });

  const faults = networkFaults("UPDATE");

  const session = ["isolation=serializable", "deferrable=on"].map((setting) => `-c default_transaction_${setting}`);
  const serializable = `postgres?options=${encodeURIComponent(session.join(" "))}`;
  const places: [name: string, way: Way, port: () => number, database: string][] = [
    ["postgres", byUrl, () => server.port, "postgres"],
    ["postgres, a pg pool", byPool, () => server.port, "postgres"],
    ["postgres, a postgres.js instance", byPostgresJs, () => server.port, "postgres"],
    ["postgres, through PgBouncer in transaction mode", byUrl, () => bouncer.port, "postgres"],
    ["postgres, a postgres.js instance through PgBouncer", byPostgresJs, () => bouncer.port, "postgres"],
    ["postgres, at SERIALIZABLE and DEFERRABLE", byUrl, () => server.port, serializable],
  ];
  checkWays(
    places.map(([name, way, port, database]) => {
      const open: Open = (through, options, ends) =>
        way(`postgres://postgres@127.0.0.1:${through}/${database}`, options, ends);
      // Faults depend on how a package reports them, not on the server, so one server is enough.
      const hasFaults = database === "postgres" && !name.includes("PgBouncer");
      return [name, () => throughNetwork(port(), open)(), hasFaults ? faults : {}];
    }),
  );

  test("never mistakes renamed columns for an empty store and works with a camelCase transform, which renames none of its columns", async (t) => {
    const options = { issuer: "https://renamed.example" };
    const opened = (transform: object) => {
      const sql = postgres(server.url(), { transform, fetch_types: false });
      t.after(() => sql.end({ timeout: 1 }));
      return postgresStore(sql, options);
    };
    const camel = opened(postgres.camel);
    assert.equal(await camel.write("text", undefined, { due: 0 }), true);
    await camel.presence?.put("id", "record");
    assert.equal((await camel.read(undefined, { confirmed: true })).text, "text");
    assert.equal((await camel.presence?.list(9))?.records.get("id"), "record");
    const [first] = (await camel.due?.(1)) ?? [];
    assert.equal(first?.issuer, options.issuer);
    // Other tests have left later rows.
    const others = (await camel.due?.(100, first)) ?? [];
    assert.ok(others.every(({ issuer }) => issuer !== options.issuer));
    const pascal = opened(postgres.pascal);
    const calls = [
      () => pascal.read(),
      () => pascal.read(undefined, { confirmed: true }),
      () => pascal.presence?.list(9),
      () => pascal.due?.(9),
    ];
    const refusal = { code: "ERR_STORE_UNAVAILABLE", message: /did not return the column "\w+"; remove .* transform/ };
    for (const call of calls) await assert.rejects(async () => call(), refusal, String(call));
  });

  test("the program in docs/many-issuers.md generates a tenant's keys, publishes them, and signs", async (t) => {
    const path = await sample(t, "examples/docs/many-issuers.mts", {
      ".listen(3000)": ".listen(0, function () { process.send(this.address().port) })",
      "console.log(": "process.send(",
      "3_600_000);": "3_600_000).unref();",
    });
    const { next } = runSample(t, path, { DATABASE_URL: server.url(), JWKSD_WRAPPING_KEYS: newWrappingKey() });
    const { kid } = decodeProtectedHeader(String(await next()));
    const port = String(await next());
    const ask = (place: string): Promise<Response> => fetch(`http://127.0.0.1:${port}/${place}`);
    const { keys } = (await (await ask("acme/jwks")).json()) as { keys: { kid: string }[] };
    assert.deepEqual(
      keys.map((key) => key.kid),
      [kid],
    );
    assert.equal((await ask("other/jwks")).status, 404);
    const names = "SELECT name FROM jwksd.documents WHERE name LIKE 'https://login.example.com/%'";
    assert.deepEqual(server.sql(names), ["https://login.example.com/acme"]);
  });

  checkSample("examples/docs/postgres.mts", () => ({ "postgres://jwksd@db.example/jwksd": server.url() }));
}
