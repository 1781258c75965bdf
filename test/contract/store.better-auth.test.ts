// better-auth's database as a store, through each of its adapters that can run here.

import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import type { BetterAuthOptions } from "better-auth";
import { drizzleAdapter } from "better-auth/adapters/drizzle";
import { memoryAdapter } from "better-auth/adapters/memory";
import { getAdapter } from "better-auth/db/adapter";
import { getMigrations } from "better-auth/db/migration";
import { drizzle } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { decodeProtectedHeader } from "jose";
import { createConnection, createPool } from "mysql2/promise";
import pg from "pg";
import type * as Program from "../../examples/docs/better-auth-store.mts";
import {
  type BetterAuthAdapter,
  betterAuthStore,
  jwksdStorePlugin,
} from "../../src/rotation/store/databases/better-auth.ts";
import { type Faults, defineRegisterTests } from "../../src/testing/register-tests.ts";
import { type Networked, type Open, networkFaults, serverFaults, throughNetwork } from "../support/faults.ts";
import { newWrappingKey } from "../support/managed.ts";
import { startMariadb } from "../support/mariadb.ts";
import { skipWithout } from "../support/parts.ts";
import { startPostgres } from "../support/postgres.ts";
import { sample } from "../support/samples.ts";
import { isSoak } from "../support/soak.ts";

type Database = BetterAuthOptions["database"];
const optionsOf = (database: Database): BetterAuthOptions => ({ database, plugins: [jwksdStorePlugin] });

const migrate = async (database: Database): Promise<void> => (await getMigrations(optionsOf(database))).runMigrations();

const mariadbAt = (port: number) => createPool({ uri: `mysql://jwksd:s3cret@127.0.0.1:${port}/jwksd` });
/** Creates a pool with listeners: otherwise, a connection that breaks while Kysely has it would end the process. */
function postgresAt(port: number) {
  const pool = new pg.Pool({ connectionString: `postgres://postgres@127.0.0.1:${port}/postgres` });
  pool.on("connect", (client) => void client.on("error", () => {}));
  pool.on("error", () => {});
  return pool;
}
const skip = skipWithout("mariadbd", "mariadb-install-db", "initdb");
const mariadb = skip === false ? await startMariadb({ after }) : undefined;
if (mariadb !== undefined) {
  const root = await createConnection({ host: "127.0.0.1", port: mariadb.port, user: "root" });
  await root.query("ALTER DATABASE jwksd CHARACTER SET utf8mb4");
  await root.end();
  const pool = mariadbAt(mariadb.port);
  await migrate(pool);
  await pool.end();
}
/** Starts a server with the table. @returns its port */
async function postgresPort(): Promise<number> {
  const postgres = await startPostgres();
  after(() => postgres.stop());
  const pool = postgresAt(postgres.port);
  await migrate(pool);
  await pool.end();
  return postgres.port;
}

defineRegisterTests("better-auth, SQLite through Kysely", async () => {
  const adapter = await sqliteAdapter();
  return { handle: async (issuer) => betterAuthStore(adapter, { issuer }) };
});

const column = () => text().notNull();
const columns = { issuer: column().unique(), version: column(), text: column(), confirmation: column() };
const drizzleSchema = { jwksd: pgTable("jwksd", { id: text().primaryKey(), ...columns }) };

/** A function that opens better-auth's database on a port. `end` closes its connections. */
type Way = (port: number) => { readonly database: Database; readonly end: () => unknown };

function check(name: string, port: number, way: Way, faults: Faults<Networked> = {}): void {
  const open: Open = async (port, options, ends) => {
    const { database, end } = way(port);
    ends.push(end);
    return betterAuthStore(await getAdapter(optionsOf(database)), options);
  };
  defineRegisterTests(`better-auth, ${name}`, throughNetwork(port, open), { ...networkFaults("during"), ...faults });
}

if (mariadb !== undefined) {
  const byKysely: Way = (port) => {
    const pool = mariadbAt(port);
    return { database: pool, end: () => void pool.end().catch(() => {}) };
  };
  check("MariaDB through Kysely", mariadb.port, byKysely, serverFaults("during", mariadb));
}
// With PostgreSQL, only the adapter differs.
if (isSoak) {
  const port = await postgresPort();
  const through =
    (adapter: (pool: ReturnType<typeof postgresAt>) => Database): Way =>
    (port) => {
      const pool = postgresAt(port);
      return { database: adapter(pool), end: () => void pool.end() };
    };
  const byDrizzle = (pool: ReturnType<typeof postgresAt>) =>
    drizzleAdapter(drizzle(pool), { provider: "pg", schema: drizzleSchema });
  check(
    "PostgreSQL through Kysely",
    port,
    through((pool) => pool),
  );
  check("PostgreSQL through Drizzle", port, through(byDrizzle));
}

/** Creates a better-auth adapter over SQLite. */
async function sqliteAdapter(): Promise<BetterAuthAdapter> {
  const database = new DatabaseSync(":memory:");
  await migrate(database);
  return getAdapter(optionsOf(database));
}
const issuer = "https://op.example";
const broken = async (): Promise<never> => {
  throw new Error("the connection broke");
};
/** Adapters whose results are wrong: the result of a write through each, and the document that is read afterwards. */
const wrongAdapters: Readonly<
  Record<string, [change: (adapter: BetterAuthAdapter) => Partial<BetterAuthAdapter>, result: unknown, text: string]>
> = {
  "its count is 0": [(adapter) => ({ updateMany: async (query) => (await adapter.updateMany(query), 0) }), true, "new"],
  "its count is 1": [() => ({ updateMany: async () => 1 }), "Error", "old"],
  "its response is lost": [
    (adapter) => ({ updateMany: async (query) => (await adapter.updateMany(query), broken()) }),
    true,
    "new",
  ],
  "the query is lost": [() => ({ updateMany: broken }), "Error", "old"],
};
test("decides whether a write succeeded by reading it back, whatever the adapter returns", async () => {
  for (const [name, [change, expected, text]] of Object.entries(wrongAdapters)) {
    const adapter = await sqliteAdapter();
    const correct = betterAuthStore(adapter, { issuer });
    assert.equal(await correct.write("old", undefined), true);
    const { version } = await correct.read();
    const wrong = betterAuthStore({ ...adapter, ...change(adapter) }, { issuer });
    const result = await wrong.write("new", version).catch(({ name }: Error) => name);
    assert.deepEqual([result, (await correct.read()).text], [expected, text], name);
    // An adapter that writes nothing cannot confirm a read.
    const confirmed = await wrong.read(undefined, { confirmed: true }).catch(({ code }) => code);
    if (text === "old") assert.equal(confirmed, "ERR_STORE_UNAVAILABLE", name);
  }
});

test("never mistakes a row without the expected fields for an empty store", async () => {
  const adapter = await sqliteAdapter();
  assert.equal(await betterAuthStore(adapter, { issuer }).write("text", undefined), true);
  const renamed = betterAuthStore({ ...adapter, findMany: async () => [{}] }, { issuer });
  for (const confirmed of [false, true])
    await assert.rejects(renamed.read(undefined, { confirmed }), { code: "ERR_STORE_UNAVAILABLE", message: /fields/ });
});

test("rejects two rows for one issuer, which are possible only without a unique index", async () => {
  const adapter = await getAdapter(optionsOf(memoryAdapter({ jwksd: [] })));
  const register = betterAuthStore(adapter, { issuer });
  await Promise.allSettled([register.write("one", undefined), register.write("two", undefined)]);
  await assert.rejects(register.read(), { code: "ERR_STORE_UNAVAILABLE", message: /unique index/ });
});

test("errors contain the database's message, but not the data that was written", async () => {
  const adapter = await getAdapter(optionsOf(new DatabaseSync(":memory:")));
  await assert.rejects(betterAuthStore(adapter, { issuer }).read(), /no such table: jwksd/);
  const failing = {
    ...adapter,
    create: async () => {
      throw new Error("Invalid `create()`:\n\n  text: secret\n\nP2021: no table", {});
    },
  };
  await assert.rejects(
    betterAuthStore(failing, { issuer }).write("secret", undefined),
    (error: Error) => !error.message.includes("secret"),
  );
});

test("the program in docs/better-auth.md keeps its keys in MySQL", async (t) => {
  if (mariadb === undefined) return;
  const DATABASE_URL = `mysql://jwksd:s3cret@127.0.0.1:${mariadb.port}/jwksd`;
  Object.assign(process.env, {
    DATABASE_URL,
    JWKSD_WRAPPING_KEYS: newWrappingKey(),
    BETTER_AUTH_SECRET: newWrappingKey(),
  });
  const kids = [];
  for (const start of ["first", "second"]) {
    const path = await sample(t, "examples/docs/better-auth-store.mts");
    const { auth, manager } = (await import(path)) as typeof Program;
    const { token } = await auth.api.signJWT({ body: { payload: { sub: start } } });
    kids.push(decodeProtectedHeader(token).kid);
    await manager.close();
    await auth.options.database.end();
  }
  assert.equal(kids[0], kids[1]);
});
