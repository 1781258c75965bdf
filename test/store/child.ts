// A second process that uses a store: `child.ts COMMAND PATH`. It prints JSON lines.

import { rmSync, writeFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { JwksdError } from "../../src/base/errors.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { countIn, writeNext } from "./steps.ts";

// The path of a SQLite store, or the URL of a database.
const [command = "", path = ""] = process.argv.slice(2);
const open = (): Register =>
  path.startsWith("postgres:") ? postgresStore(path, { issuer: "https://op.example" }) : sqliteStore(path);

// Synchronous, so that a SIGKILL loses no earlier line.
const print = (line: unknown): void => void writeSync(1, `${JSON.stringify(line)}\n`);

const errorJson = (error: unknown): unknown => {
  if (!(error instanceof JwksdError)) throw error;
  const { errcode } = (error.cause ?? {}) as { errcode?: number };
  return { code: error.code, retryable: error.retryable, message: error.message, sqlite: errcode };
};

const commands: Readonly<Record<string, () => Promise<void>>> = {
  /** Writes forever and prints each count after it was written. */
  async writes() {
    const store = open();
    for (let count = await countIn(store); await writeNext(store, count); count += 1) print(count + 1);
  },

  /** Creates stores one by one and prints the number of each. */
  async creates() {
    for (let number = 1; ; number += 1) {
      await sqliteStore(`${path}.${number}`).read();
      print(number);
    }
  },

  /** For each count on standard input, tries to write the next one, and prints whether it did. */
  async race() {
    const store = open();
    print("ready");
    for await (const count of createInterface({ input: process.stdin })) print(await writeNext(store, Number(count)));
    await store.close?.();
  },

  /** Opens the store, prints the document, and writes. */
  async attempt() {
    const store = open();
    const { version, text } = await store.read();
    print(text ?? null);
    print(await store.write("b", version));
  },

  /** Fills the disk with as many records as fit, frees some space, and continues. */
  async fill() {
    const ballast = `${path}.ballast`;
    writeFileSync(ballast, new Uint8Array(200_000));
    const store = sqliteStore(path);
    let written = 0;
    const fill = async (): Promise<unknown> => {
      for (;;) {
        try {
          await store.presence?.put(`${written}`, "a".repeat(4_096));
          written += 1;
        } catch (error) {
          return errorJson(error);
        }
      }
    };
    for (const isLast of [false, true]) {
      const error = await fill();
      const read = (await store.presence?.list(1))?.count;
      const db = new DatabaseSync(path);
      const { integrity_check: integrity } = db.prepare("PRAGMA integrity_check").get() as Record<string, unknown>;
      db.close();
      print({ error, written, read, integrity });
      if (!isLast) rmSync(ballast);
    }
    print("ended");
  },
};

try {
  await commands[command]?.();
} catch (error) {
  print(errorJson(error));
}
