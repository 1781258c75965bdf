// What a second process does with a store: `child.ts COMMAND PATH`. It answers in lines on standard output.
import { rmSync, writeFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { JwksdError } from "../../src/base/errors.ts";
import { postgresStores } from "../../src/rotation/store/postgres/postgres.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { eventOf, tombstone } from "../../src/testing/records.ts";
import { checkSteps, nextCommit } from "./steps.ts";

// The path of a SQLite store, or the URL of a database with one issuer.
const [command = "", path = ""] = process.argv.slice(2);
const open = async (): Promise<KeyStore> => {
  if (!path.startsWith("postgres:")) return sqliteStore(path);
  return (await postgresStores(path)).store("https://op.example");
};

// Synchronous: what was said before a SIGKILL has been said.
const say = (line: unknown): void => void writeSync(1, `${JSON.stringify(line)}\n`);

const codeOf = (error: unknown): unknown => {
  if (!(error instanceof JwksdError)) throw error;
  const { errcode } = (error.cause ?? {}) as { errcode?: number };
  return { code: error.code, retryable: error.retryable, message: error.message, sqlite: errcode };
};

const commands: Readonly<Record<string, () => Promise<void>>> = {
  /** Commits for ever, and says each revision after its commit. */
  async commits() {
    const store = await open();
    for (let { revision } = await store.load(); ; revision += 1) {
      const { records, events } = nextCommit(revision);
      await store.commit(revision, records, events);
      say(revision + 1);
    }
  },

  /** Makes one store after the other, and says the number of each that is made. */
  async creates() {
    for (let number = 1; ; number += 1) {
      const store = await sqliteStore(`${path}.${number}`);
      say(number);
      await store.close();
    }
  },

  /** For each revision on standard input, tries to be the one who commits on top of it, under the name that follows it. */
  async race() {
    const store = await open();
    say("ready");
    for await (const line of createInterface({ input: process.stdin })) {
      const [revision, name] = JSON.parse(line) as [number, string];
      const { records } = await store.load();
      say(
        await store
          .commit(revision, [...records, tombstone(name)], [eventOf(name)])
          .then(() => "won")
          .catch(codeOf),
      );
    }
    await store.close();
  },

  /** Says, for each call of a watched store, what it loads by then; for each line of input, commits that kid. */
  async follow() {
    const store = await sqliteStore(path);
    const load = async (): Promise<void> => say((await store.load()).records.map(({ kid }) => kid));
    store.watch(() => void load(), { signal: new AbortController().signal });
    await load();
    for await (const kid of createInterface({ input: process.stdin })) {
      const { revision, records } = await store.load();
      await store.commit(revision, [...records, tombstone(kid)], [eventOf(kid)]);
    }
    await store.close();
  },

  /** Opens the store, says which kids it reads, and commits once. */
  async attempt() {
    const store = await sqliteStore(path);
    const { revision, records } = await store.load();
    say(records.map(({ kid }) => kid));
    await store.commit(revision, [tombstone("a")], []);
    await store.close();
  },

  /** Fills the disk to the last commit that fits, makes room, and goes on. */
  async fill() {
    const ballast = `${path}.ballast`;
    writeFileSync(ballast, new Uint8Array(200_000));
    const store = await sqliteStore(path);
    let revision = 0;
    const commit = async (): Promise<void> => {
      const { records, events } = nextCommit(revision);
      revision = await store.commit(revision, records, events);
    };
    const fill = async (): Promise<unknown> => {
      for (;;) {
        try {
          await commit();
        } catch (error) {
          return codeOf(error);
        }
      }
    };
    for (const last of [false, true]) {
      const error = await fill();
      // What this handle sees, and what is on disk.
      const other = await sqliteStore(path);
      const seen = [await checkSteps(store), await checkSteps(other)];
      await other.close();
      const db = new DatabaseSync(path);
      const { integrity_check: integrity } = db.prepare("PRAGMA integrity_check").get() as Record<string, unknown>;
      db.close();
      say({ error, revision, seen, integrity });
      if (!last) rmSync(ballast);
    }
    await store.close();
    say("closed");
  },
};

try {
  await commands[command]?.();
} catch (error) {
  say(codeOf(error));
}
