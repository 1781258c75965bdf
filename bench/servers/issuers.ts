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

// Serves many issuers over one database. With a count, creates that many issuers and exits; with "single", serves one issuer's provider.

const [, , url = "", wrappingKeys = "", mode = ""] = process.argv;
const isPostgres = url.startsWith("postgres:");
const pool = isPostgres
  ? new pg.Pool({ connectionString: url, max: 10 })
  : createPool({ uri: url, connectionLimit: 10 });
const store = async (issuer: string): Promise<Register> =>
  pool instanceof pg.Pool ? postgresStore(pool, { issuer }) : mysqlStore(pool, { issuer });
const named = (name: number): string => `https://op.example/${name}`;

if (mode === "single") {
  const keys = await createKeyManager({ issuer: named(0), store: await store(named(0)), wrappingKeys, onDemand: true });
  listen(createServer((await createProvider({ keys })).node));
} else {
  const issuers = await createIssuers({ issuer: "https://op.example/*", store, wrappingKeys, maxIssuers: 2_500 });
  const remaining = Array.from({ length: Number(mode) }, (_, index) => index).values();
  const createRemaining = async (): Promise<void> => {
    for (const name of remaining) await issuers.create(named(name));
  };
  await Promise.all(Array.from({ length: 10 }, createRemaining));
  if (mode === "") listen(createServer(issuers.node));
  else process.exit();
}
