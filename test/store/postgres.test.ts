import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmodSync, chownSync, cpSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import pg from "pg";
import { JwksdError } from "../../src/base/errors.ts";
import type { StoreOptions } from "../../src/rotation/store/databases/database-calls.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import { readingRights, rights, schema } from "../../src/rotation/store/postgres/schema.ts";
import { isPostgresUrl } from "../../src/rotation/store/postgres/url.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { cuttable } from "../support/cuttable.ts";
import { part, skipWithout } from "../support/parts.ts";
import { type PostgresServer, startPostgres, startStandby } from "../support/postgres.ts";
import { eventually, freePort, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { endChild, startChild } from "./processes.ts";
import { countIn, textAt } from "./steps.ts";
import { watched } from "./watched.ts";

const skip = skipWithout("initdb", "openssl");

type Scope = Pick<TestContext, "after">;

let server: PostgresServer;

/** Returns a unique issuer. */
const newIssuer = (): string => `https://${randomUUID()}.example`;

/** Creates a new database, which takes longer than a new issuer. */
function database(): string {
  const name = `d${randomUUID().replaceAll("-", "")}`;
  server.sql(`CREATE DATABASE ${name}`);
  return name;
}

async function opened(t: Scope, url: string, options: Partial<StoreOptions> = {}): Promise<Register> {
  const store = postgresStore(url, { issuer: "https://op.example", ...options });
  t.after(() => store.close?.());
  return store;
}

async function refusal(attempt: Promise<unknown> | undefined, code: string, expected: RegExp): Promise<JwksdError> {
  const error = await (attempt ?? Promise.resolve()).then(
    () => assert.fail(`nothing was refused; expected ${code}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof JwksdError, inspect(error));
  assert.equal(error.code, code, error.message);
  assert.match(error.message, expected);
  return error;
}

async function refusals(
  attempts: readonly (Promise<unknown> | undefined)[],
  code: string,
  expected: RegExp,
): Promise<void> {
  await Promise.all(attempts.map((attempt) => refusal(attempt, code, expected)));
}

/** Encodes a server's message in PostgreSQL's protocol. */
function message(type: string, body: string): Buffer {
  const bytes = Buffer.alloc(5 + body.length);
  bytes.write(type);
  bytes.writeInt32BE(4 + body.length, 1);
  bytes.write(body, 5, "latin1");
  return bytes;
}

/** Asserts that a write fails without a code, because it may have succeeded. */
async function unknown(attempt: Promise<unknown>): Promise<void> {
  const error = await attempt.then(
    (result) => assert.fail(`it returned ${String(result)}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof Error && !(error instanceof JwksdError), inspect(error));
}

/** Sets environment variables until the test ends. */
function environment(t: Scope, variables: Readonly<Record<string, string>>): void {
  Object.assign(process.env, variables);
  t.after(() => {
    for (const name of Object.keys(variables)) Reflect.deleteProperty(process.env, name);
  });
}

/** Repeats a call until it succeeds and returns its result. */
async function insist<T>(call: () => Promise<T>): Promise<T> {
  let result: { readonly value: T } | undefined;
  await eventually("a result", async () => {
    result = await call().then(
      (value) => ({ value }),
      (error: unknown) => {
        if (error instanceof assert.AssertionError) throw error;
        return undefined;
      },
    );
    return result !== undefined;
  });
  return (result as unknown as { readonly value: T }).value;
}

const at = (rest: string): string => `postgres://${rest}`;

test("names the pg package if it is missing", async (t) => {
  const folder = await temporaryFolder(t);
  cpSync(fileURLToPath(new URL("../../src", import.meta.url)), join(folder, "src"), { recursive: true });
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  const script = `
    const { postgresStore } = await import("./src/rotation/store/postgres/postgres.ts");
    const store = postgresStore("postgres://127.0.0.1/a", { issuer: "https://op.example" });
    await store.read().catch(({ name, code, message }) => console.log(name, code, message));
  `;
  const args = ["--input-type=module", "-e", script];
  const stdout = execFileSync(process.execPath, args, { cwd: folder, encoding: "utf8" });
  assert.match(stdout, /^ConfigError ERR_PACKAGE_MISSING .*npm install pg$/m);
});

describe("the PostgreSQL store", { skip }, () => {
  before(async () => {
    server = await startPostgres();
  });
  after(() => server.stop());

  test("if the network stops responding, every call times out, watchers are called, and calls succeed again afterwards", async (t) => {
    const network = await cuttable(server.port);
    t.after(() => network.close());
    const issuer = newIssuer();
    await (await opened(t, server.url(), { issuer })).write("a", undefined);
    const store = await opened(t, at(`postgres@127.0.0.1:${network.port}/postgres`), { issuer, timeoutMs: 400 });
    const { version } = await insist(() => store.read());
    const seen = await watched(t, store);
    await seen.changed(async () => {
      network.silence();
      await unknown(store.write("b", version));
      const reads = [store.read(), store.read(undefined, { confirmed: true }), store.presence?.list(9)];
      await refusals(reads, "ERR_STORE_UNAVAILABLE", /no response in time/);
    });
    await seen.changed(() => network.restore());
    assert.equal((await insist(() => store.read())).text, "a");
  });

  test("a connection that closes as soon as it opens does not crash the process", async (t) => {
    const stopping = "SFATAL\0VFATAL\0C57P01\0Mit stops\0\0";
    const ending = createServer((socket) => {
      socket.on("error", () => {});
      const begins = [message("R", "\0\0\0\0"), message("Z", "I"), message("E", stopping)];
      socket.once("data", () => socket.end(Buffer.concat(begins)));
    });
    await once(ending.listen(0, "127.0.0.1"), "listening");
    t.after(() => ending.close());
    const { port } = ending.address() as AddressInfo;
    const store = await opened(t, `postgres://postgres@127.0.0.1:${port}/any?sslmode=disable`);
    await refusal(store.read(), "ERR_STORE_UNAVAILABLE", /try again/);
  });

  test("errors name the invalid setting but never show a password", async (t) => {
    const network = await cuttable(server.port);
    t.after(() => network.close());
    network.silence();
    const port = await freePort();
    const rows: [url: string, code: string, message: RegExp][] = [
      [server.url("nowhere"), "ERR_STORE_UNAVAILABLE", /\(3D000\): the database does not exist/],
      [
        at(`postgres@127.0.0.1:${port}/postgres`),
        "ERR_STORE_UNAVAILABLE",
        /\(ECONNREFUSED\): no server is listening on this host and port/,
      ],
      [at(`postgres@127.0.0.1:${network.port}/postgres`), "ERR_STORE_UNAVAILABLE", /no response in time/],
      [at(`/postgres?host=/nowhere&port=${port}`), "ERR_STORE_UNAVAILABLE", /\(ENOENT\)/],
      [at(`locked:sesame@127.0.0.1:${server.port}/postgres`), "ERR_STORE_UNAVAILABLE", /\(28P01\).*password/],
      [at(`locked@127.0.0.1:${server.port}/postgres`), "ERR_STORE_UNAVAILABLE", /requires a password; set PGPASSWORD/],
      [`${server.url()}?sslmode=require`, "ERR_STORE_UNAVAILABLE", /it does not support TLS; set sslmode/],
      [`${server.url()}?sslmode=verify-ca`, "ERR_OPTION_INVALID", /verify-ca requires specifying a CA/],
      [`${server.url()}?sslrootcert=/nowhere`, "ERR_OPTION_INVALID", /ENOENT.*\/nowhere/],
      ["sesame", "ERR_OPTION_INVALID", /have the form postgres:/],
      ["https://user:sesame@op.example/", "ERR_OPTION_INVALID", /have the form postgres:/],
      [at("a,b:5432/postgres"), "ERR_STORE_UNAVAILABLE", /\((ENOTFOUND|EAI_AGAIN)\)/],
    ];
    for (const [url, code, expected] of rows) {
      const calls = [(store: Register) => store.read(), (store: Register) => store.write("a", undefined)];
      for (const call of calls) {
        const attempt = opened(t, url, { timeoutMs: 2_000 }).then<unknown>(call);
        const error = await refusal(attempt, code, expected);
        assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("sesame"), url);
      }
    }
    const wrong = [{ timeoutMs: 0 }, { issuer: "" }, { issuer: "a".repeat(2_049) }, { issuer: "\ud800" }];
    for (const options of wrong) await refusal(opened(t, server.url(), options), "ERR_OPTION_INVALID", /must be/);
  });

  test("passwords come from the URL, PGPASSWORD or a password file, and other settings from the environment", async (t) => {
    const name = database();
    const base = `127.0.0.1:${server.port}/${name}`;
    const reads = async (url: string): Promise<unknown> => (await opened(t, url)).read();
    await reads(at(`locked:right@${base}`));
    await t.test("PGPASSWORD", async (t) => {
      environment(t, { PGPASSWORD: "right" });
      await reads(at(`locked@${base}`));
    });
    await t.test("PGPASSFILE", async (t) => {
      const file = join(await temporaryFolder(t), "pass");
      writeFileSync(file, `127.0.0.1:${server.port}:*:locked:right\n`, { mode: 0o600 });
      environment(t, { PGPASSFILE: file });
      await reads(at(`locked@${base}`));
    });
    environment(t, { PGHOST: server.folder, PGPORT: `${server.port}`, PGUSER: "postgres", PGDATABASE: name });
    assert.equal(await (await opened(t, at(""))).write("a", undefined), true);
    assert.deepEqual(server.sql("SELECT text FROM jwksd.documents", name), ["a"]);
  });

  test("URLs of Unix sockets are accepted, including one with a user but no host", async (t) => {
    const folder = encodeURIComponent(server.folder);
    server.sql(`CREATE ROLE "a+b&c" SUPERUSER LOGIN`);
    for (const rest of [
      `postgres@/postgres?host=${folder}&port=${server.port}`,
      `postgres:secret@:${server.port}/postgres?host=${folder}`,
      `a+b&c@:${server.port}/postgres?host=${folder}`,
      `:${server.port}/postgres?host=${folder}&user=postgres`,
    ]) {
      const store = await opened(t, at(rest), { issuer: newIssuer() });
      assert.equal(await store.write("text", undefined), true, rest);
    }
    for (const rest of ["u%zz@/d", "@:x/d"]) assert.equal(isPostgresUrl(at(rest)), false, rest);
  });

  test("closing the store releases its connections but leaves the caller's pool open", async (t) => {
    const pool = new pg.Pool({ connectionString: server.url(), max: 3 });
    t.after(() => pool.end());
    const store = postgresStore(pool, { issuer: newIssuer() });
    await watched(t, store);
    await Promise.all(Array.from({ length: 20 }, () => store.read()));
    await store.write("a", undefined);
    await store.close?.();
    await eventually("no connection is used", () => pool.totalCount - pool.idleCount + pool.waitingCount === 0);
  });

  describe("privileges", () => {
    test("a user that cannot create tables, one that cannot write, and one that cannot read each get a different error", async (t) => {
      const name = database();
      for (const user of ["humble", "reader", "stranger"]) server.sql(`CREATE ROLE ${user} LOGIN`);
      const as = (user: string): Promise<Register> => opened(t, at(`${user}@127.0.0.1:${server.port}/${name}`));
      const [humble, reader, stranger] = [await as("humble"), await as("reader"), await as("stranger")];
      assert.equal((await humble.read()).version, undefined);
      await refusal(
        humble.write("a", undefined),
        "ERR_STORE_UNAVAILABLE",
        /\(42501\): the user lacks a privilege; grant the privileges that this command prints: jwksd store sql/,
      );

      server.sql(
        `${schema}${schema}${rights.replaceAll(":user", "humble")}${readingRights.replaceAll(":user", "reader")}`,
        name,
      );
      assert.equal(await humble.write("a", undefined, { due: 1.5 }), true);
      const { version } = await humble.read();
      assert.equal(await humble.write("b", version), true);
      await humble.presence?.put("id", "record");
      assert.deepEqual(await reader.presence?.list(9), { records: new Map([["id", "record"]]), count: 1 });
      for (const options of [{}, { confirmed: true }]) assert.equal((await reader.read(undefined, options)).text, "b");
      const seen = await watched(t, reader);
      await seen.changed(async () => humble.write("c", (await humble.read()).version));
      await refusals(
        [reader.write("d", version), reader.write("d", undefined), reader.presence?.put("a", "")],
        "ERR_STORE_READ_ONLY",
        /\(42501\)/,
      );
      await humble.presence?.drop(["id"]);
      await refusals(
        [stranger.read(), stranger.read("a", { confirmed: true }), stranger.presence?.list(9)],
        "ERR_STORE_UNAVAILABLE",
        /\(42501\)/,
      );
    });

    test("a write to a database that is read-only by default is rejected", async (t) => {
      const name = database();
      await (await opened(t, server.url(name))).write("a", undefined);
      server.sql(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
      const store = await opened(t, server.url(name));
      assert.equal((await store.read(undefined, { confirmed: true })).text, "a");
      await refusal(store.write("b", undefined), "ERR_STORE_READ_ONLY", /\(25006\)/);
    });

    test("reports an unknown server error with the server's message, but without its details", async (t) => {
      const name = database();
      server.sql(
        `${schema} CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'too early'
           USING ERRCODE = 'P0001', DETAIL = 'sesame', HINT = 'sesame'; END $$ LANGUAGE plpgsql;
         CREATE TRIGGER refuse BEFORE INSERT ON jwksd.documents FOR EACH ROW EXECUTE FUNCTION refuse()`,
        name,
      );
      const expected = /\(P0001\): it reports "too early"; try again$/;
      const store = await opened(t, server.url(name));
      const error = await refusal(store.write("a", undefined), "ERR_STORE_UNAVAILABLE", expected);
      assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("sesame"));
    });

    test("rejects tables that belong to a different program", async (t) => {
      const name = database();
      server.sql("CREATE SCHEMA jwksd; CREATE TABLE jwksd.documents (id text)", name);
      const store = await opened(t, server.url(name));
      await refusals([store.read(), store.write("a", undefined)], "ERR_STORE_FORMAT", /another program/);
    });
  });

  describe("several processes", () => {
    for (const level of ["read committed", "serializable"]) {
      test(`at ${level}, one of 8 simultaneous first writes succeeds and creates the tables`, async (t) => {
        const name = database();
        server.sql(`ALTER DATABASE ${name} SET default_transaction_isolation = '${level}'`);
        const stores = await Promise.all(Array.from({ length: 8 }, () => opened(t, server.url(name))));
        const outcomes = await Promise.all(stores.map((store) => store.write("a", undefined)));
        assert.equal(outcomes.filter(Boolean).length, 1);
      });
    }

    test("in each round, exactly one of two racing processes wins", async (t) => {
      const url = server.url(database());
      const racers = [1, 2].map(() => startChild("race", url));
      t.after(() => racers.forEach((racer) => racer.process.kill("SIGKILL")));
      for (const racer of racers) assert.equal(await racer.next(), "ready");
      for (let round = 0; round < soak(30, 10); round += 1) {
        for (const racer of racers) racer.send(`${round}`);
        const results = await Promise.all(racers.map((racer) => racer.next()));
        assert.equal(results.filter((won) => won === true).length, 1, `round ${round}: ${JSON.stringify(results)}`);
      }
    });

    test("a process that is killed during a write does not leave a partial write", async (t) => {
      const url = server.url(database());
      const store = await opened(t, url);
      for (let round = 1; round <= soak(3, 1); round += 1) {
        const child = startChild("writes", url);
        let printed = 0;
        for (let count = 0; count < 5 * round; count += 1) printed = (await child.next()) as number;
        child.process.kill("SIGKILL");
        await endChild(child);
        assert.ok((await countIn(store)) >= printed);
      }
    });
  });

  describe("a dedicated server", () => {
    let folder: string;
    let own: PostgresServer;
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), "jwksd-tls-"));
      const [key, crt] = [join(folder, "server.key"), join(folder, "server.crt")];
      const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
      const made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
      execFileSync(part("openssl"), [...made, ...subject, "-keyout", key, "-out", crt], { stdio: "ignore" });
      chmodSync(folder, 0o755);
      if (process.getuid?.() === 0) {
        const uid = Number(execFileSync("id", ["-u", "postgres"], { encoding: "utf8" }));
        chownSync(key, uid, uid);
      }
      own = await startPostgres(["ssl = on", `ssl_cert_file = '${crt}'`, `ssl_key_file = '${key}'`]);
    });
    after(async () => {
      await own.stop();
      await rm(folder, { recursive: true });
    });

    const restarts = soak(25, 2);

    test(`writes survive ${restarts} server crashes, and repeating a write whose outcome is unknown is safe`, async (t) => {
      own.sql("CREATE DATABASE crashes");
      const store = await opened(t, own.url("crashes"), { timeoutMs: 1_000 });
      const seen = await watched(t, store);
      const over = new AbortController();
      let count = 0;
      const writing = (async () => {
        while (!over.signal.aborted) {
          const { version } = await insist(() => store.read());
          // The same write under the same condition, until it is known to have succeeded.
          await insist(() => store.write(textAt(count + 1), version));
          assert.equal(await insist(() => countIn(store)), count + 1);
          count += 1;
        }
      })();
      const restarting = (async () => {
        for (let restart = 0; restart < restarts; restart += 1) {
          const before = count;
          await eventually("it writes", () => count > before + 2);
          for (const change of [() => own.kill(), () => own.start()]) await seen.changed(change);
        }
      })();
      await Promise.race([writing, restarting]).finally(() => over.abort());
      await writing;
    });

    test("a replaced primary that is still running answers plain reads but not confirmed reads", async (t) => {
      own.sql("CREATE DATABASE failover");
      // With this default, a write alone would not wait for the standby.
      own.sql("ALTER DATABASE failover SET synchronous_commit = off");
      const standby = await startStandby(own);
      t.after(() => standby.stop());
      const wait = async (names: string): Promise<void> => {
        own.sql(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`);
        own.sql("SELECT pg_reload_conf()");
        await eventually("it is set", () => (own.sql("SHOW synchronous_standby_names")[0] ?? "") === names);
      };
      await wait("*");
      t.after(() => wait(""));
      own.sql("CREATE ROLE reading LOGIN");
      own.sql(`${schema}${readingRights.replaceAll(":user", "reading")}`, "failover");
      const options = { timeoutMs: 1_000 };
      const old = await opened(t, own.url("failover"), options);
      const reading = await opened(t, at(`reading@127.0.0.1:${own.port}/failover`), options);
      const next = await opened(t, standby.url("failover"), options);
      assert.equal(await old.write("a", undefined), true);
      assert.equal((await reading.read(undefined, { confirmed: true })).text, "a");
      await refusal(next.read(), "ERR_STORE_UNAVAILABLE", /is a standby or is read-only; connect to the primary/);
      await refusal(next.read(undefined, { confirmed: true }), "ERR_STORE_UNAVAILABLE", /standby/);
      await refusal(next.write("b", undefined), "ERR_STORE_READ_ONLY", /\(25006\)/);

      await standby.promote();
      const { version } = await old.read();
      await eventually("it is the primary", () => next.write("b", version).catch(() => false));
      for (const store of [old, reading]) {
        assert.equal((await store.read()).text, "a");
        for (let attempt = 0; attempt < 3; attempt += 1) {
          await refusal(store.read(undefined, { confirmed: true }), "ERR_STORE_UNAVAILABLE", /try again/);
        }
      }
      await unknown(old.write("c", version));
      await unknown(old.presence?.put("a", "") ?? Promise.resolve());
      // Few sessions wait for the standby, no matter how often a process retries.
      const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'failover' AND wait_event = 'SyncRep'";
      assert.deepEqual(own.sql(waiting), ["4"]);
    });

    const to = (host: string, query: string): string => `postgres://postgres@${host}:${own.port}/postgres?${query}`;
    const isEncrypted = async (url: string, variables: Readonly<Record<string, string>> = {}): Promise<boolean> => {
      Object.assign(process.env, variables);
      const store = postgresStore(url, { issuer: "https://op.example" });
      await store.read().finally(() => {
        for (const name of Object.keys(variables)) Reflect.deleteProperty(process.env, name);
      });
      // Connections of earlier stores may still exist.
      const [newest] = own.sql(
        `SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'jwksd'
         ORDER BY backend_start DESC LIMIT 1`,
      );
      await store.close?.();
      return newest === "t";
    };

    test("TLS settings mean the same as in libpq", async () => {
      const crt = join(folder, "server.crt");
      assert.equal(await isEncrypted(to("127.0.0.1", "sslmode=disable")), false);
      for (const query of ["", "sslmode=prefer", "sslmode=require", `sslmode=verify-ca&sslrootcert=${crt}`]) {
        assert.equal(await isEncrypted(to("127.0.0.1", query)), true, query);
      }
      assert.equal(await isEncrypted(to("localhost", `sslmode=verify-full&sslrootcert=${crt}`)), true);
      const otherName = /certificate is for a different host name/;
      const wrongHost = isEncrypted(to("127.0.0.1", `sslmode=verify-full&sslrootcert=${crt}`));
      await refusal(wrongHost, "ERR_STORE_UNAVAILABLE", otherName);
      const untrusted = /certificate is not trusted; set sslmode/;
      await refusal(isEncrypted(to("localhost", "sslmode=verify-full")), "ERR_STORE_UNAVAILABLE", untrusted);
      const verified = { PGSSLMODE: "verify-full" };
      await refusal(isEncrypted(to("localhost", ""), verified), "ERR_STORE_UNAVAILABLE", untrusted);
      assert.equal(await isEncrypted(to("localhost", ""), { ...verified, PGSSLROOTCERT: crt }), true);
    });
  });
});
