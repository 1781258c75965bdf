// What a second process does with a store: `child.ts COMMAND PATH`. It answers in lines on standard output.

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

// Synchronous: what was said before a SIGKILL has been said.
const say = (line: unknown): void => void writeSync(1, `${JSON.stringify(line)}\n`);

const codeOf = (error: unknown): unknown => {
  if (!(error instanceof JwksdError)) throw error;
  const { errcode } = (error.cause ?? {}) as { errcode?: number };
  return { code: error.code, retryable: error.retryable, message: error.message, sqlite: errcode };
};

const commands: Readonly<Record<string, () => Promise<void>>> = {
  /** Writes for ever, and says each count after it was written. */
  async writes() {
    const store = open();
    for (let count = await countIn(store); await writeNext(store, count); count += 1) say(count + 1);
  },

  /** Makes one store after the other, and says the number of each that is made. */
  async creates() {
    for (let number = 1; ; number += 1) {
      await sqliteStore(`${path}.${number}`).read();
      say(number);
    }
  },

  /** For each count on standard input, tries to be the one who writes what follows it. */
  async race() {
    const store = open();
    say("ready");
    for await (const count of createInterface({ input: process.stdin })) say(await writeNext(store, Number(count)));
    await store.close?.();
  },

  /** Opens the store, says what it reads, and writes. */
  async attempt() {
    const store = open();
    const { version, text } = await store.read();
    say(text ?? null);
    say(await store.write("b", version));
  },

  /** Fills the disk to the last line that fits, makes room, and goes on. */
  async fill() {
    const ballast = `${path}.ballast`;
    writeFileSync(ballast, new Uint8Array(200_000));
    const store = sqliteStore(path);
    let lines = 0;
    const fill = async (): Promise<unknown> => {
      for (;;) {
        try {
          await store.presence?.put(`${lines}`, "a".repeat(4_096));
          lines += 1;
        } catch (error) {
          return codeOf(error);
        }
      }
    };
    for (const isLast of [false, true]) {
      const error = await fill();
      const seen = (await store.presence?.list(1))?.count;
      const db = new DatabaseSync(path);
      const { integrity_check: integrity } = db.prepare("PRAGMA integrity_check").get() as Record<string, unknown>;
      db.close();
      say({ error, lines, seen, integrity });
      if (!isLast) rmSync(ballast);
    }
    say("ended");
  },
};

try {
  await commands[command]?.();
} catch (error) {
  say(codeOf(error));
}
