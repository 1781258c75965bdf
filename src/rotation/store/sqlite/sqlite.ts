/**
 * A store in a SQLite file.
 *
 * @module jwksd/store/sqlite
 */

import { resolve } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { sleep } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { StoreError } from "../../../base/errors.ts";
import { checkArgument, text } from "../../../base/options.ts";
import { checkRuntime } from "../../../base/runtime.ts";
import { poll } from "../poll.ts";
import type { OpenRegister, StoreCall } from "../register.ts";
import { isBusy, storeError } from "./errors.ts";
import { change, createFile, openFile, setUp } from "./file.ts";
import { nodeSqlite } from "./node-sqlite.ts";

const pollMs = 250;
// All retries together wait about five seconds for a lock, which another process holds for milliseconds.
const lockRetryMs = 20;
const maxLockRetries = 250;

/**
 * A store in one SQLite file, which any number of processes on one machine may share. A file that does not exist is made, with mode
 * 0600; its folder has to exist. The file is opened for each call, so another one that takes its place is used from then on.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export async function sqliteStore(path: string): Promise<OpenRegister> {
  checkArgument("the path", path, text);
  // Absolute: a later change of directory leads nowhere else, and names that SQLite treats specially are names of files.
  const file = resolve(path);
  // Before a file is made that nothing could open.
  checkRuntime();
  nodeSqlite();
  createFile(file);
  const closing = new AbortController();

  async function use<T>(
    action: (db: DatabaseSync) => T,
    { signal }: StoreCall = {},
    writes?: "document" | "presence",
  ): Promise<T> {
    for (let retries = 0; ; retries += 1) {
      signal?.throwIfAborted();
      if (closing.signal.aborted) {
        throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${file} was closed; open it again`);
      }
      try {
        const db = openFile(file);
        try {
          return action(db);
        } finally {
          // What was not committed is rolled back.
          db.close();
        }
      } catch (error) {
        if (!isBusy(error) || retries === maxLockRetries) throw storeError(error, file, writes);
      }
      // SQLite would wait, too, and stop all else in this process meanwhile.
      await sleep(Math.random() * 2 * lockRetryMs, systemClock, signal);
    }
  }

  // A file that cannot be used fails here, and not at its first use.
  await use((db) => setUp(db, file));
  return {
    name: file,

    read: (known, call) =>
      use((db) => {
        const query = "SELECT version, CASE WHEN version = ? THEN NULL ELSE text END AS text FROM document";
        const { version, text } = (db.prepare(query).get(known ?? null) ?? {}) as { version?: string; text?: string };
        return { ...(version && { version }), ...(typeof text === "string" && { text }) };
      }, call),

    write: (text, ifVersion, call) =>
      use(
        (db) =>
          change(db, file, "INSERT OR REPLACE INTO document VALUES (1, ?, ?)", [crypto.randomUUID(), text], () => {
            return versionIn(db) === ifVersion;
          }),
        call,
        "document",
      ),

    presence: {
      async put(id, line, call) {
        const sql = "INSERT OR REPLACE INTO presence VALUES (?, ?)";
        await use((db) => change(db, file, sql, [id, line]), call, "presence");
      },
      all: (call) =>
        use((db) => {
          const rows = db.prepare("SELECT id, line FROM presence").all() as { id: string; line: string }[];
          return new Map(rows.map(({ id, line }) => [id, line]));
        }, call),
      async drop(id, call) {
        await use((db) => change(db, file, "DELETE FROM presence WHERE id = ?", [id]), call, "presence");
      },
    },

    watch(onChange, { signal }) {
      const both = AbortSignal.any([signal, closing.signal]);
      if (!both.aborted) poll(() => use(versionIn), pollMs, onChange, both);
    },

    async close() {
      closing.abort();
    },
  };
}

function versionIn(db: DatabaseSync): string | undefined {
  const row = db.prepare("SELECT version FROM document").get() as { version: string } | undefined;
  return row?.version;
}
