// Wrong values instead of a store's database, and promises instead of values.

import assert from "node:assert/strict";
import { test } from "node:test";
import pg from "pg";
import postgres from "postgres";
import { createProvider } from "../../src/index.ts";
import { createKeyManager } from "../../src/rotation/index.ts";
import { createIssuers } from "../../src/rotation/issuers/index.ts";
import { betterAuthStore } from "../../src/rotation/store/databases/better-auth.ts";
import { d1Store } from "../../src/rotation/store/databases/d1.ts";
import { durableObjectStore } from "../../src/rotation/store/databases/durable-object.ts";
import { etcdStore } from "../../src/rotation/store/databases/etcd.ts";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { mysqlStore } from "../../src/rotation/store/databases/mysql.ts";
import { redisStore } from "../../src/rotation/store/databases/redis.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { newWrappingKey } from "../support/managed.ts";

type Make = (given: never, options: { issuer: string }) => unknown;

/** Each store, and the required value in its message. */
const stores: readonly (readonly [make: Make, required: RegExp])[] = [
  [d1Store, /env\.NAME, where NAME is the binding of a D1 database/],
  [durableObjectStore, /env\.NAME, where NAME is the binding of the KeysObject class/],
  [betterAuthStore, /a better-auth adapter/],
  [mysqlStore, /a URL or a mysql2 pool/],
  [redisStore, /a URL or a redis or ioredis client/],
  [libsqlStore, /a URL or an @libsql\/client client/],
  [etcdStore, /the URL of a member/],
  [postgresStore, /a URL, a pool from the pg package/],
  [sqliteStore, /a non-empty string/],
];

const issuer = "https://op.example";

async function refusal(attempt: () => unknown, code = "ERR_OPTION_INVALID"): Promise<string> {
  const error = await (async () => attempt())().then(
    () => assert.fail("it was not refused"),
    (error: unknown) => error as Error & { code: string },
  );
  assert.equal(error.code, code, error.message);
  return error.message;
}

test("a store immediately rejects a database argument of the wrong kind, and says what it requires", async () => {
  for (const [make, required] of stores) {
    for (const [given, instead] of [
      [undefined, /, not undefined$/],
      [null, /, not null$/],
      [7, /, not (a number|7)$/],
      [{}, /, not an object$/],
      [Promise.resolve({}), /, not a promise; await it$/],
    ] as const) {
      const message = await refusal(() => make(given as never, { issuer }));
      assert.match(message, required);
      assert.match(message, instead, `${make.name}: ${message}`);
    }
  }
  for (const given of [[], [7]]) await refusal(() => etcdStore(given as never, { issuer }));
  for (const [make] of stores.slice(0, 7)) {
    const database = { withSession() {}, idFromName() {}, get() {}, create() {}, findMany() {}, updateMany() {} };
    const client = { ...database, getConnection() {}, sendCommand() {}, batch() {} };
    const given = make === etcdStore ? "http://127.0.0.1:1" : client;
    assert.match(
      await refusal(() => make(given as never, undefined as never)),
      /"issuer" option is missing/,
      make.name,
    );
  }
});

test("the PostgreSQL store accepts neither a single connection nor a transaction", async () => {
  await refusal(() => postgresStore(new pg.Client() as never, { issuer }));
  const sql = postgres("postgres://127.0.0.1:1/none");
  await refusal(() =>
    postgresStore(Object.assign(() => {}, { unsafe: () => {}, savepoint() {} }) as never, { issuer }),
  );
  postgresStore(sql, { issuer });
});

test("rejects a promise passed as an option, and advises the caller to await it", async () => {
  const wrappingKeys = newWrappingKey();
  const store = memoryStore();
  const later = { store: Promise.resolve(store) as never, keys: Promise.resolve({}) as never };
  const rows: (() => unknown)[] = [
    () => createKeyManager({ issuer, store: later.store, wrappingKeys }),
    () => createIssuers({ issuer: `${issuer}/*`, store: later.store, wrappingKeys }),
    () => createProvider({ keys: later.keys }),
    () => createProvider({ issuer, keyset: later.keys }),
    () => createProvider(later.keys),
  ];
  for (const row of rows) assert.match(await refusal(row), /a promise; await it/, String(row));
  const withSigner = () => createProvider({ issuer, keyset: [{ kid: "a", signer: later.keys }] });
  assert.match(await refusal(withSigner, "ERR_KEY_FORMAT"), /the signer is a promise; await it/);
});
