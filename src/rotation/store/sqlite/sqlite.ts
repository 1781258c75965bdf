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
import { checkArgument, nonEmptyString } from "../../../base/options.ts";
import { checkRuntime } from "../../../base/runtime-support.ts";
import { poll } from "../poll.ts";
import type { ClosableRegister, CallOptions } from "../register.ts";
import { bounded, boundedDocument, maxBytesOf } from "../size-limits.ts";
import { change, createFile, openFile, setUp } from "./database-file.ts";
import { isBusy, storeError } from "./errors.ts";
import { nodeSqlite } from "./load-sqlite.ts";

const pollMs = 250;
// SQLite computes octet_length without reading the value.
const queries = {
  version: `SELECT ${bounded("version", "version")} FROM document`,
  document: `SELECT ${bounded("version", "version")}, ${boundedDocument("?")} FROM document`,
  count: "SELECT count(*) AS count FROM presence",
  list: `SELECT id, ${bounded("record", "record")} FROM presence WHERE octet_length(id) <= ${maxBytesOf.id} LIMIT ?`,
} as const;
// Together, the retries wait about five seconds for a lock, which other processes hold for milliseconds.
const lockRetryMs = 20;
const maxLockRetries = 250;

/**
 * Creates a store in one SQLite file, which any number of processes on one machine may share. If the file does not
 * exist, it is created with mode 0600; its folder must exist. The file is opened again for each call, so if it is
 * replaced, the next call uses the new file.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE` if the file cannot be created
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export function sqliteStore(path: string): ClosableRegister {
  checkArgument("the path", path, nonEmptyString);
  // The path is made absolute, so that a later change of directory has no effect and SQLite's special names are
  // ordinary files.
  const file = resolve(path);
  // Checked first, because otherwise a file would be created that the runtime cannot open.
  checkRuntime();
  nodeSqlite();
  createFile(file);
  const closing = new AbortController();
  let isSetUp = false;

  async function use<T>(
    action: (db: DatabaseSync) => T,
    { signal }: CallOptions = {},
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
          if (!isSetUp) setUp(db, file);
          isSetUp = true;
          return action(db);
        } finally {
          // This rolls back an uncommitted transaction.
          db.close();
        }
      } catch (error) {
        if (!isBusy(error) || retries === maxLockRetries) throw storeError(error, file, writes);
      }
      // Waits here, because waiting in SQLite would block the whole process.
      await sleep(Math.random() * 2 * lockRetryMs, systemClock, signal);
    }
  }

  return {
    name: file,
    maxBytes: maxBytesOf.document,

    read: (known, call) =>
      use((db) => {
        const found = db.prepare(queries.document).get(known ?? null);
        const { version, text } = (found ?? {}) as { version?: string; text?: string };
        return { ...(version !== undefined && { version }), ...(typeof text === "string" && { text }) };
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
      async put(id, record, call) {
        const sql = "INSERT OR REPLACE INTO presence VALUES (?, ?)";
        await use((db) => change(db, file, sql, [id, record]), call, "presence");
      },
      list: (limit, call) =>
        use((db) => {
          const { count } = db.prepare(queries.count).get() as { count: number };
          const rows = db.prepare(queries.list).all(limit) as { id: string; record: string }[];
          return { records: new Map(rows.map(({ id, record }) => [id, record])), count };
        }, call),
      async drop(ids, call) {
        const sql = "DELETE FROM presence WHERE id IN (SELECT value FROM json_each(?))";
        await use((db) => change(db, file, sql, [JSON.stringify(ids)]), call, "presence");
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
  const row = db.prepare(queries.version).get() as { version: string } | undefined;
  return row?.version;
}
