import assert from "node:assert/strict";
import { after, test } from "node:test";
import { createPool as callbackPool, escape } from "mysql2";
import { type RowDataPacket, createConnection, createPool } from "mysql2/promise";
import { mysqlStore } from "../../src/rotation/store/databases/mysql.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { cuttable } from "../support/cuttable.ts";
import {
  type Open,
  checkSample,
  checkShortly,
  checkWays,
  networkFaults,
  serverFaults,
  throughNetwork,
} from "../support/faults.ts";
import { startMariadb } from "../support/mariadb.ts";
import { skipWithout } from "../support/parts.ts";
import { freePort } from "../support/service.ts";

if (skipWithout("mariadbd", "mariadb-install-db") === false) {
  const server = await startMariadb({ after });
  const url = (port = server.port): string => `mysql://jwksd:s3cret@127.0.0.1:${port}/jwksd`;
  const sql = async (text: string): Promise<void> => {
    const root = await createConnection({ host: "127.0.0.1", port: server.port, user: "root" });
    await root.query(text);
    await root.end();
  };

  const ways: Record<string, Open> = {
    "by URL": (port, options) => mysqlStore(url(port), options),
    "a promise-based pool with a different character set": (port, options, ends) => {
      const pool = createPool({ uri: url(port), charset: "latin1_swedish_ci" });
      ends.push(() => void pool.end().catch(() => {}));
      return mysqlStore(pool, options);
    },
    "a callback-based pool": (port, options, ends) => {
      const pool = callbackPool({ uri: url(port) });
      ends.push(() => pool.end(() => {}));
      return mysqlStore(pool, options);
    },
  };
  checkWays(
    Object.entries(ways).map(([name, way]) => {
      const faults = { ...networkFaults("during"), ...(name === "by URL" && serverFaults("during", server)) };
      return [`MariaDB, ${name}`, throughNetwork(server.port, way), faults];
    }),
  );

  test("a read-only server and a rejected user cause errors with different codes, and no message shows a password", async (t) => {
    const refusal = async (register: ReturnType<typeof mysqlStore>, isWrite: boolean): Promise<string> => {
      t.after(() => register.close?.());
      const call = isWrite ? register.write("text", undefined) : register.read();
      const { code, message } = (await (call as Promise<unknown>).then(
        () => assert.fail("it did not refuse"),
        (error: unknown) => error,
      )) as Error & { code: string };
      assert.doesNotMatch(message, /s3cret|wrong/);
      return `${code} ${message}`;
    };
    const options = { issuer: "https://op.example" };
    const wrong = url().replace("s3cret", "wrong");
    assert.match(await refusal(mysqlStore(wrong, options), true), /^ERR_STORE_UNAVAILABLE .*ER_ACCESS_DENIED/);
    assert.match(await refusal(mysqlStore(url(1), options), true), /^ERR_STORE_UNAVAILABLE .*ECONNREFUSED/);
    await mysqlStore(url(), options).read();
    await sql("SET GLOBAL read_only = 1");
    t.after(() => sql("SET GLOBAL read_only = 0"));
    assert.match(await refusal(mysqlStore(url(), options), true), /^ERR_STORE_READ_ONLY /);
    assert.match(await refusal(mysqlStore(url(), options), false), /^ERR_STORE_UNAVAILABLE .*connect to the primary/);
  });

  test("after a failover, does not keep a connection to the demoted primary, even if both primaries share an address", async (t) => {
    const address = await cuttable(server.port);
    t.after(() => address.close());
    const register = mysqlStore(url(address.port), { issuer: "https://failover.example" });
    t.after(() => register.close?.());
    await register.read();
    await sql("SET GLOBAL read_only = 1");
    t.after(() => sql("SET GLOBAL read_only = 0"));
    // A new connection fails: nothing is listening on this port.
    address.routeNewTo(await freePort());
    await assert.rejects(register.read(), /connect to the primary/);
    await assert.rejects(register.read(), /PROTOCOL_CONNECTION_LOST|ECONNRESET/);
    await sql("SET GLOBAL read_only = 0");
    address.routeNewTo(server.port);
    await register.read();
  });

  test("a primary waiting for a missing replica does not confirm reads", async (t) => {
    const issuer = "https://cut-off.example";
    const register = mysqlStore(url(), { issuer, timeoutMs: 2_000 });
    t.after(() => register.close());
    assert.equal(await register.write("text", undefined), true);
    await sql("SET GLOBAL rpl_semi_sync_master_timeout = 3600000");
    await sql("SET GLOBAL rpl_semi_sync_master_enabled = 1");
    t.after(() => sql("SET GLOBAL rpl_semi_sync_master_enabled = 0"));
    assert.equal((await register.read()).text, "text");
    await assert.rejects(register.read(undefined, { confirmed: true }), { code: "ERR_STORE_UNAVAILABLE" });
    const { version } = await register.read();
    const error = await register.write("unknown", version).catch((error: unknown) => error);
    assert.ok(error instanceof Error && !("code" in error), "it may be written");
  });

  test("a user with read access to documents can confirm reads, but cannot write", async (t) => {
    const options = { issuer: "https://reader.example" };
    const writer = mysqlStore(url(), options);
    t.after(() => writer.close());
    assert.equal(await writer.write("text", undefined), true);
    await sql("CREATE USER reader IDENTIFIED BY 's3cret'");
    await sql("GRANT SELECT ON jwksd.* TO reader");
    await sql("GRANT INSERT, UPDATE, DELETE ON jwksd.jwksd_presence TO reader");
    const reader = mysqlStore(url().replace("jwksd:", "reader:"), options);
    t.after(() => reader.close());
    const { version, text } = await reader.read(undefined, { confirmed: true });
    assert.equal(text, "text");
    await assert.rejects(reader.write("more", version), { code: "ERR_STORE_READ_ONLY" });
  });

  const sessions = [
    "autocommit = 0",
    "completion_type = 'CHAIN'",
    "completion_type = 'RELEASE'",
    "autocommit = 0, completion_type = 'CHAIN'",
    "SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SESSION TRANSACTION READ ONLY",
    "innodb_snapshot_isolation = 1",
    "sql_mode = ''",
    "sql_mode = 'ANSI'",
    "sql_mode = 'ORACLE'",
    "sql_mode = 'EMPTY_STRING_IS_NULL'",
    "sql_safe_updates = 1",
    "time_zone = '+09:00'",
  ];
  test("under each session setting in this test, commits its writes and reads only committed data", async (t) => {
    t.after(() => sql("SET GLOBAL init_connect = ''"));
    const failures: string[] = [];
    for (const [index, session] of sessions.entries()) {
      await sql(`SET GLOBAL init_connect = ${escape(`SET ${session}`)}`);
      const handle = async (issuer: string) => mysqlStore(url(), { issuer: `${issuer}#${index}`, timeoutMs: 2_000 });
      try {
        await checkShortly(async () => ({ handle }));
        await checkIsolation(await handle("https://isolated.example"));
      } catch (error) {
        failures.push(`${session}: ${(error as Error).message}`);
      }
    }
    assert.deepEqual(failures, []);
  });

  test("does not mistake rows that a server setting has changed for an empty store", async (t) => {
    const options = { issuer: "https://changed-rows.example" };
    const missing = /did not return the column "now"; remove client and server settings that change rows/;
    const intact = mysqlStore(url(), options);
    t.after(() => intact.close());
    assert.equal(await intact.write("text", undefined), true);
    await intact.presence?.put("id", "record");
    const refused = async (register: ReturnType<typeof mysqlStore>, name: string, isListed = false): Promise<void> => {
      t.after(() => register.close());
      const expected = { code: "ERR_STORE_UNAVAILABLE", message: missing };
      for (const confirmed of [false, true])
        await assert.rejects(register.read(undefined, { confirmed }), expected, name);
      const list = async (): Promise<unknown> => [await register.presence?.list(9), await register.due?.(9)];
      if (!isListed) await assert.rejects(list(), { code: "ERR_STORE_UNAVAILABLE" }, name);
    };
    for (const setting of [{ rowsAsArray: true }, { nestTables: true }, { nestTables: "_" }] as const) {
      const pool = createPool({ uri: url(), ...setting });
      t.after(() => pool.end());
      await refused(mysqlStore(pool, options), JSON.stringify(setting));
    }
    t.after(() => sql("SET GLOBAL init_connect = ''"));
    for (const setting of ["character_set_results = ucs2", "sql_select_limit = 0"]) {
      await sql(`SET GLOBAL init_connect = 'SET ${setting}'`);
      // A query with its own limit ignores the setting.
      await refused(mysqlStore(url(), options), setting, setting.includes("limit"));
    }
  });

  test("a call waits for a transaction left open on a pool's connection, but does not join it", async (t) => {
    const pool = createPool({ uri: url(), connectionLimit: 1 });
    t.after(() => pool.end());
    await sql("CREATE TABLE jwksd.theirs (id INT)");
    const register = mysqlStore(pool, { issuer: "https://dirty.example" });
    for (const call of [() => register.read(), () => register.write("text", undefined), () => register.read()]) {
      await pool.query("SET autocommit = 0");
      await pool.query("INSERT INTO theirs VALUES (1)");
      await call();
    }
    assert.equal((await register.read()).text, "text");
    const [rows] = await pool.query("SELECT * FROM theirs");
    assert.deepEqual(rows, []);
  });

  /** Checks what another connection sees, which has none of the register's session settings. */
  async function checkIsolation(register: Register): Promise<void> {
    const observer = await createConnection({ host: "127.0.0.1", port: server.port, user: "root", database: "jwksd" });
    try {
      assert.equal(await register.write("one", undefined), true);
      const { version } = await register.read();
      const where = "WHERE version = ?";
      const committed = async (version = ""): Promise<unknown> =>
        (await observer.query<RowDataPacket[]>(`SELECT text FROM jwksd_documents ${where}`, [version]))[0][0]?.["text"];
      assert.equal(String(await committed(version)), "one", "its first write is committed");
      assert.equal(await register.write("two", version), true);
      const { version: next } = await register.read();
      assert.equal(String(await committed(next)), "two", "its second write is committed");
      await observer.query("START TRANSACTION");
      await observer.query(`UPDATE jwksd_documents SET text = 'uncommitted' ${where}`, [next]);
      assert.equal((await register.read()).text, "two", "uncommitted data is not read");
      await observer.query("COMMIT");
      assert.equal((await register.read()).text, "uncommitted", "committed data is read");
    } finally {
      await observer.end();
      await register.close?.();
    }
  }

  checkSample("examples/docs/store-mysql.mts", () => ({ "mysql://jwksd@db.example/jwksd": url() }));
}
