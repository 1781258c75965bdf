import { createServer } from "node:http";
import { createPool } from "mysql2/promise";
import pg from "pg";
import { createProvider } from "../../src/index.ts";
import { createIssuers } from "../../src/rotation/issuers/issuers.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { mysqlStore } from "../../src/rotation/store/databases/mysql.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { listen } from "./setup.ts";

// Many issuers over one database; with a count, makes the first ones and ends; with "single", the provider of one of them.

const [, , url = "", wrappingKeys = "", what = ""] = process.argv;
const isPostgres = url.startsWith("postgres:");
const pool = isPostgres
  ? new pg.Pool({ connectionString: url, max: 10 })
  : createPool({ uri: url, connectionLimit: 10 });
const store = async (issuer: string): Promise<Register> =>
  pool instanceof pg.Pool ? postgresStore(pool, { issuer }) : mysqlStore(pool, { issuer });
const named = (name: number): string => `https://op.example/${name}`;

if (what === "single") {
  const keys = await createKeyManager({ issuer: named(0), store: await store(named(0)), wrappingKeys, onDemand: true });
  listen(createServer((await createProvider({ keys })).node));
} else {
  const issuers = await createIssuers({ issuer: "https://op.example/*", store, wrappingKeys, maxIssuers: 2_500 });
  const waiting = Array.from({ length: Number(what) }, (_, index) => index).values();
  const make = async (): Promise<void> => {
    for (const name of waiting) await issuers.create(named(name));
  };
  await Promise.all(Array.from({ length: 10 }, make));
  if (what === "") listen(createServer(issuers.node));
  else process.exit();
}
