import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmodSync, chownSync, cpSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect, isDeepStrictEqual } from "node:util";
import { JwksdError } from "../../src/base/errors.ts";
import { rights } from "../../src/rotation/store/postgres/schema.ts";
import { type PostgresPool, type PostgresStores, postgresStores } from "../../src/rotation/store/postgres/postgres.ts";
import { faultOfUrl, hasPassword } from "../../src/rotation/store/postgres/url.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { part, skipWithout } from "../support/parts.ts";
import { type PostgresServer, startPostgres, startStandby } from "../support/postgres.ts";
import { committed, eventOf, tombstone } from "../../src/testing/records.ts";
import { eventually, freePort, temporaryFolder } from "../support/service.ts";
import { World, issuer, seen } from "../manager/world.ts";
import { endChild, startChild } from "./processes.ts";
import { checkSteps } from "./steps.ts";

const skip = skipWithout("initdb", "openssl");

type Scope = Pick<TestContext, "after">;

let server: PostgresServer;

/** A database of its own. */
function database(): string {
  const name = `d${randomUUID().replaceAll("-", "")}`;
  server.sql(`CREATE DATABASE ${name}`);
  return name;
}

async function opened(t: Scope, url: string, timeoutMs = 5_000): Promise<PostgresStores> {
  const stores = await postgresStores(url, { timeoutMs });
  t.after(() => stores.close());
  return stores;
}

const issuerOf = (): string => `https://${randomUUID()}.example`;

async function refusal(attempt: Promise<unknown>, code: string, says: RegExp): Promise<JwksdError> {
  const error = await attempt.then(
    () => assert.fail(`nothing was refused; expected ${code}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof JwksdError, inspect(error));
  assert.equal(error.code, code, error.message);
  assert.match(error.message, says);
  return error;
}

/** Sets variables of the environment until the test ends. */
function environment(t: Scope, variables: Readonly<Record<string, string>>): void {
  Object.assign(process.env, variables);
  t.after(() => {
    for (const name of Object.keys(variables)) Reflect.deleteProperty(process.env, name);
  });
}

/** Resolves when a store calls back. */
function change(store: KeyStore, t: Scope): Promise<void> {
  const controller = new AbortController();
  t.after(() => controller.abort());
  return new Promise((resolve, reject) => {
    // Also keeps the process alive: a store that is watched need not.
    const timer = setTimeout(() => reject(new Error("nobody was called back")), 10_000);
    store.watch(() => (clearTimeout(timer), resolve()), { signal: controller.signal });
  });
}

/** A store behind a network, and one that sees what is there. */
async function cutStore(t: Scope, timeoutMs = 400): Promise<{ network: Cuttable; store: KeyStore; direct: KeyStore }> {
  const network = await cuttable(server.port);
  t.after(() => network.close());
  const issuer = issuerOf();
  const store = (await opened(t, `postgres://postgres@127.0.0.1:${network.port}/postgres`, timeoutMs)).store(issuer);
  await store.load();
  return { network, store, direct: (await opened(t, server.url())).store(issuer) };
}

const at = (rest: string): string => `postgres://${rest}`;

test("without the package pg the error names what to install", async (t) => {
  const folder = await temporaryFolder(t);
  cpSync(fileURLToPath(new URL("../../src", import.meta.url)), join(folder, "src"), { recursive: true });
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  const script = `
    const { postgresStores } = await import("./src/rotation/store/postgres/postgres.ts");
    await postgresStores("postgres://127.0.0.1/a").catch(({ name, code, message }) => console.log(name, code, message));
  `;
  const stdout = execFileSync(process.execPath, ["--input-type=module", "-e", script], {
    cwd: folder,
    encoding: "utf8",
  });
  assert.match(stdout, /^ConfigError ERR_PACKAGE_MISSING .*npm install pg$/m);
});

describe("the store in PostgreSQL", { skip }, () => {
  before(async () => {
    server = await startPostgres();
  });
  after(() => server.stop());

  describe("over a network that fails", () => {
    const cuts = ["before the server hears it", "after the server has answered", "silent from then on"] as const;
    for (const cut of cuts) {
      test(`a connection that is lost at COMMIT, ${cut}: it is written once`, async (t) => {
        const { network, store, direct } = await cutStore(t);
        let times = 0;
        network.cutAt("COMMIT", cut, () => void (times += 1));
        assert.equal(await store.commit(0, [tombstone("a")], [eventOf("a")], { mac: "s" }), 1);
        assert.equal(times, 1, "it was lost");
        for (const handle of [store, direct]) {
          assert.deepEqual(await committed(handle), { revision: 1, records: [tombstone("a")], mac: "s" });
          assert.equal((await handle.events()).length, 1);
        }
        assert.equal(await store.commit(1, [tombstone("a")], []), 2);
      });

      test(`a lease whose answer is lost, ${cut}: it is there once`, async (t) => {
        const { network, store, direct } = await cutStore(t);
        network.cutAt("COMMIT", cut);
        await store.join({ id: "a", name: "a" }, 60_000);
        const renew = (): Promise<number> =>
          store.renew({ id: "a", publishes: 1, signsWith: ["k"] }, 60_000, { serial: 1 });
        network.cutAt("jwksd.leases", cut);
        await refusal(renew(), "ERR_STORE_UNAVAILABLE", /no answer in time/);
        assert.equal(await renew(), 0);
        const { leases } = await direct.load();
        assert.deepEqual(
          leases.map(({ id, publishes, signsWith }) => [id, publishes, signsWith]),
          [["a", 1, ["k"]]],
        );
      });
    }

    test("another commit that came first is found to have, also where the answer was lost", async (t) => {
      // The other commit is slow on a busy machine, and the lost one may not give up before.
      const { network, store, direct } = await cutStore(t, 30_000);
      network.cutAt("COMMIT", "before the server hears it", () => network.cut());
      const lost = store.commit(0, [tombstone("a")], []);
      await eventually("the other commit", async () => (await direct.commit(0, [tombstone("b")], [])) === 1);
      network.mend();
      await refusal(lost, "ERR_STORE_CONFLICT", /revision 1, not 0/);
      assert.deepEqual((await direct.load()).records, [tombstone("b")]);
    });

    test("a commit of which nothing is heard any more is unknown, and loading tells", async (t) => {
      const { network, store, direct } = await cutStore(t);
      network.cutAt("COMMIT", "silent from then on", () => setImmediate(() => network.cut()));
      const error = await refusal(store.commit(0, [tombstone("a")], []), "ERR_COMMIT_UNKNOWN", /may have been written/);
      assert.equal(error.retryable, true);
      network.mend();
      // A busy machine may take longer to connect than the deadline, and the server may still be at the commit.
      await eventually("loading tells", async () => {
        const seen = await committed(store).catch(() => undefined);
        return isDeepStrictEqual(seen, await committed(direct));
      });
    });

    test("a connection that is lost before COMMIT: nothing has changed", async (t) => {
      const { network, store, direct } = await cutStore(t);
      network.cutAt("jwksd.events", "before the server hears it");
      await refusal(store.commit(0, [tombstone("a")], []), "ERR_STORE_UNAVAILABLE", /try again/);
      assert.deepEqual(await committed(direct), { revision: 0, records: [] });
      assert.equal(await store.commit(0, [tombstone("a")], []), 1);
    });

    test("silence: every call has a deadline, who watches hears of it, and it goes on afterwards", async (t) => {
      const { network, store, direct } = await cutStore(t);
      const lost = change(store, t);
      network.silence();
      for (const call of [
        () => store.load(),
        () => store.events(),
        () => store.leave("a"),
        () => store.commit(0, [], []),
      ]) {
        await refusal(call(), "ERR_STORE_UNAVAILABLE", /no answer in time/);
      }
      await lost;
      const back = change(store, t);
      await direct.commit(0, [tombstone("a")], []);
      network.mend();
      await back;
      await eventually("it loads again", async () => (await store.load().catch(() => undefined))?.revision === 1);
    });

    test("a renewal that nobody waits for any more is given up by the server, too", async (t) => {
      const network = await cuttable(server.port);
      t.after(() => network.close());
      const [url, issuer] = [`postgres://postgres@127.0.0.1:${network.port}/postgres`, issuerOf()];
      const writer = (await opened(t, url)).store(issuer);
      const store = (await opened(t, server.url(), 300)).store(issuer);
      await store.join({ id: "a", name: "a" }, 60_000);
      // It holds the row of the issuer, and is not heard of any more.
      const holds = new Promise<void>((resolve) => network.cutAt("jwksd.events", "silent from then on", resolve));
      const commit = writer.commit(0, [], []);
      await holds;
      const counts = (): string[] =>
        server.sql(`SELECT concat(count(*) FILTER (WHERE state = 'idle in transaction'), ' and ',
          count(*) FILTER (WHERE wait_event_type = 'Lock')) FROM pg_stat_activity WHERE datname = 'postgres'`);
      await eventually("it holds the row", () => counts()[0] === "1 and 0");
      await refusal(
        store.renew({ id: "a", publishes: 1, signsWith: [] }, 60_000),
        "ERR_STORE_UNAVAILABLE",
        /try again/,
      );
      await eventually("nothing waits, and the row is still held", () => counts()[0] === "1 and 0");
      network.cut();
      await refusal(commit, "ERR_STORE_UNAVAILABLE", /try again/);
    });

    test("a server that is silent from the beginning", async (t) => {
      const network = await cuttable(server.port);
      t.after(() => network.close());
      network.silence();
      const open = postgresStores(`postgres://postgres@127.0.0.1:${network.port}/postgres`, { timeoutMs: 300 });
      await refusal(open, "ERR_STORE_UNAVAILABLE", /no answer in time/);
    });

    test("a poll is one query, however many issuers are watched", async (t) => {
      const network = await cuttable(server.port, ["fingerprint", "revision"]);
      t.after(() => network.close());
      const stores = await opened(t, `postgres://postgres@127.0.0.1:${network.port}/postgres`);
      const controller = new AbortController();
      t.after(() => controller.abort());
      for (let index = 0; index < 100; index += 1) {
        stores.store(issuerOf()).watch(() => {}, { signal: controller.signal });
      }
      const polls = (): number => network.count("fingerprint");
      await eventually("the first polls", () => polls() >= 2);
      const [before, queries] = [polls(), network.count("revision")];
      await eventually("two polls more", () => polls() >= before + 2);
      assert.equal(network.count("revision") - queries, polls() - before, "and nothing else is asked");
    });
  });

  describe("who may use it, and how", () => {
    test("wrong settings are named, and no password is shown", async (t) => {
      const port = await freePort();
      const rows: [url: string, code: string, says: RegExp][] = [
        [server.url("nowhere"), "ERR_STORE_UNAVAILABLE", /\(3D000\): there is no such database/],
        [at(`postgres@127.0.0.1:${port}/postgres`), "ERR_STORE_UNAVAILABLE", /\(ECONNREFUSED\): nothing listens there/],
        [at(`/postgres?host=/nowhere&port=${port}`), "ERR_STORE_UNAVAILABLE", /\(ENOENT\)/],
        [at(`locked:sesame@127.0.0.1:${server.port}/postgres`), "ERR_STORE_UNAVAILABLE", /\(28P01\).*password/],
        [at(`locked@127.0.0.1:${server.port}/postgres`), "ERR_STORE_UNAVAILABLE", /wants a password; see PGPASSWORD/],
        [`${server.url()}?sslmode=require`, "ERR_STORE_UNAVAILABLE", /it has no TLS; see sslmode/],
        [`${server.url()}?sslmode=verify-ca`, "ERR_OPTION_INVALID", /verify-ca requires specifying a CA/],
        [`${server.url()}?sslrootcert=/nowhere`, "ERR_OPTION_INVALID", /ENOENT.*\/nowhere/],
        ["sesame", "ERR_OPTION_INVALID", /a URL in the form postgres:/],
        ["https://user:sesame@op.example/", "ERR_OPTION_INVALID", /a URL in the form postgres:/],
        [at("a,b:5432/postgres"), "ERR_STORE_UNAVAILABLE", /\((ENOTFOUND|EAI_AGAIN)\)/],
      ];
      for (const [url, code, says] of rows) {
        const error = await refusal(postgresStores(url), code, says);
        assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("sesame"), url);
      }
      await assert.rejects(postgresStores(server.url(), { timeoutMs: 0 }), { code: "ERR_OPTION_INVALID" });
      const stores = await opened(t, server.url());
      for (const issuer of ["", "a".repeat(2_049), "\u0000", "\ud800"]) {
        assert.throws(() => stores.store(issuer), { code: "ERR_OPTION_INVALID" });
      }
    });

    test("passwords from the URL, PGPASSWORD and a password file", async (t) => {
      const base = `127.0.0.1:${server.port}/${database()}`;
      server.sql(`GRANT CREATE ON DATABASE ${base.split("/")[1]} TO locked`);
      await opened(t, `postgres://locked:right@${base}`);
      await t.test("PGPASSWORD", async (t) => {
        environment(t, { PGPASSWORD: "right" });
        await opened(t, `postgres://locked@${base}`);
      });
      await t.test("PGPASSFILE", async (t) => {
        const file = join(await temporaryFolder(t), "pass");
        writeFileSync(file, `127.0.0.1:${server.port}:*:locked:right\n`, { mode: 0o600 });
        environment(t, { PGPASSFILE: file });
        await opened(t, `postgres://locked@${base}`);
      });
    });

    interface Pool extends PostgresPool {
      readonly totalCount: number;
      readonly idleCount: number;
      readonly waitingCount: number;
      end(): Promise<void>;
    }

    test("a pool of the caller's: its stores work as any, and it stays the caller's", async (t) => {
      const { default: pg } = (await import("pg" satisfies string)) as {
        readonly default: { readonly Pool: new (config: object) => Pool };
      };
      const pool = new pg.Pool({ connectionString: server.url(database()), max: 3 });
      t.after(() => pool.end());
      const stores = await postgresStores(pool, { timeoutMs: 500 });
      const store = stores.store(issuerOf());
      const noticed = change(store, t);
      await Promise.all(Array.from({ length: 20 }, () => store.load()));
      await store.commit(0, [tombstone("a")], []);
      await noticed;
      await refusal(store.commit(1, [], []), "ERR_RECORDS_INVALID", /missing/);
      assert.equal(await store.commit(1, [tombstone("a")], []), 2);
      await stores.close();
      await eventually("nothing is kept", () => pool.totalCount - pool.idleCount + pool.waitingCount === 0);
      await refusal(postgresStores(5 as never), "ERR_OPTION_INVALID", /a URL, or a pool of the package pg/);
    });

    test("a Unix socket, and settings from the environment alone", async (t) => {
      const name = database();
      environment(t, { PGHOST: server.folder, PGPORT: `${server.port}`, PGUSER: "postgres", PGDATABASE: name });
      const stores = await opened(t, "postgres://");
      assert.equal(await stores.store(issuerOf()).commit(0, [], []), 1);
      assert.equal(server.sql("SELECT count(*) FROM jwksd.issuers", name)[0], "1");
    });

    test("a Unix socket, and a URL with a user and no host", async (t) => {
      const [name, folder] = [database(), encodeURIComponent(server.folder)];
      server.sql(`CREATE ROLE "a+b&c" SUPERUSER LOGIN`);
      for (const rest of [
        `postgres@/${name}?host=${folder}&port=${server.port}`,
        `postgres:secret@:${server.port}/${name}?host=${folder}`,
        `a+b&c@:${server.port}/${name}?host=${folder}`,
        `:${server.port}/${name}?host=${folder}&user=postgres`,
      ]) {
        const stores = await opened(t, at(rest));
        assert.equal(await stores.store(issuerOf()).commit(0, [], []), 1, rest);
      }
      assert.deepEqual(
        ["u:p@/d?host=/run", "u@/d?host=/run&password=p", "u@/d?host=/run", ":5432/d"].map((rest) =>
          hasPassword(at(rest)),
        ),
        [true, true, false, false],
      );
      for (const rest of ["u%zz@/d", "@:x/d"]) assert.match(faultOfUrl(at(rest)) ?? "", /^a URL in the form/);
    });

    test("a user without the right to make the schema, until somebody with it has", async (t) => {
      const name = database();
      server.sql("DROP ROLE IF EXISTS humble; CREATE ROLE humble LOGIN");
      const url = `postgres://humble@127.0.0.1:${server.port}/${name}`;
      await refusal(
        postgresStores(url),
        "ERR_STORE_UNAVAILABLE",
        /lacks a right; see the SQL of: jwksd store migrate --dry-run/,
      );
      await opened(t, server.url(name));
      await refusal(postgresStores(url), "ERR_STORE_UNAVAILABLE", /lacks a right/);
      server.sql(rights.replaceAll(":user", "humble"), name);
      const store = (await opened(t, url)).store(issuerOf());
      await store.join({ id: "a", name: "a" }, 60_000);
      await store.renew({ id: "a", publishes: 0, signsWith: [] }, 60_000);
      const { leases } = await store.load();
      await store.commit(0, [tombstone("a")], [eventOf("a")], { leases });
      await store.commit(1, [{ ...tombstone("a"), endedAt: 1 }], [eventOf("a")]);
      await store.leave("a");
      assert.equal((await store.events()).length, 2);
      const noticed = change(store, t);
      await store.commit(2, [tombstone("a")], []);
      await noticed;
    });

    test("a replica whose user may only read takes over what others did, also after its lease has ended", async (t) => {
      const name = database();
      const stores = await opened(t, server.url(name));
      server.sql("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN");
      server.sql(rights.replaceAll(":user", "reader"), name);
      const read = await opened(t, `postgres://reader@127.0.0.1:${server.port}/${name}`);
      const world = new World();
      const policy = { leaseSeconds: 60 };
      const other = await world.start({ policy, store: stores.store(issuer) });
      const reader = await world.start({ policy, store: read.store(issuer) });
      server.sql("REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA jwksd FROM reader", name);
      await world.pass(120_000);
      await world.run(other, { type: "rotate", use: "sig", key: await other.manager.makeKey("sig"), now: true });
      await world.pass(60_000);
      const { kids } = await seen(other);
      assert.deepEqual([kids.length, (await seen(reader)).kids], [2, kids]);
      assert.equal(reader.manager.isReady, false);
      for (const replica of [reader, other]) await world.stop(replica);
    });

    test("an error of the server that jwksd does not know is told in the server's words, without its details", async (t) => {
      const name = database();
      const store = (await opened(t, server.url(name))).store(issuerOf());
      server.sql(
        `CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'too early for a commit'
           USING ERRCODE = '08P01', DETAIL = 'sesame', HINT = 'sesame'; END $$ LANGUAGE plpgsql;
         CREATE TRIGGER refuse BEFORE INSERT ON jwksd.keys FOR EACH ROW EXECUTE FUNCTION refuse()`,
        name,
      );
      const says = /\(08P01\): the server says "too early for a commit"; try again$/;
      const error = await refusal(store.commit(0, [tombstone("a")], []), "ERR_STORE_UNAVAILABLE", says);
      assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("sesame"));
    });

    test("a schema of another program, and of a later jwksd, are refused and left alone", async () => {
      const [theirs, later] = [database(), database()];
      server.sql("CREATE SCHEMA jwksd; CREATE TABLE jwksd.users ()", theirs);
      await refusal(
        postgresStores(server.url(theirs)),
        "ERR_STORE_FORMAT",
        /was not made by jwksd; use another database/,
      );
      await (await postgresStores(server.url(later))).close();
      server.sql("UPDATE jwksd.schema_version SET version = 3", later);
      await refusal(postgresStores(server.url(later)), "ERR_STORE_FORMAT", /version 3, .* up to 2; update jwksd/);
    });

    test("the schema of the next version, which has only added to it, is used and left as it is", async (t) => {
      const [name, issuer] = [database(), issuerOf()];
      const running = (await opened(t, server.url(name))).store(issuer);
      await running.commit(0, [tombstone("a")], []);
      server.sql(
        `ALTER TABLE jwksd.keys ADD COLUMN later text NOT NULL DEFAULT ''; CREATE TABLE jwksd.later (a text);
         ALTER TABLE jwksd.leases ADD COLUMN later text; UPDATE jwksd.schema_version SET version = 2`,
        name,
      );
      const restarted = (await opened(t, server.url(name))).store(issuer);
      for (const [index, store] of [running, restarted].entries()) {
        const { revision, records } = await store.load();
        await store.join({ id: `${index}`, name: "a" }, 60_000);
        await store.commit(revision, [...records, tombstone(`${index}`)], [eventOf("a")]);
      }
      assert.equal((await running.load()).records.length, 3);
      assert.deepEqual(server.sql("SELECT version FROM jwksd.schema_version", name), ["2"]);
    });

    const starts = 8;

    test(`${starts} first starts at once make one schema`, async (t) => {
      const url = server.url(database());
      const stores = await Promise.all(Array.from({ length: starts }, () => opened(t, url)));
      const issuer = issuerOf();
      const outcomes = await Promise.allSettled(
        stores.map((each) => each.store(issuer).commit(0, [tombstone("a")], [])),
      );
      assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 1);
    });
  });

  describe("history", () => {
    test("what has gone back is refused, until a restart", async (t) => {
      const name = database();
      const stores = await opened(t, server.url(name));
      const issuer = issuerOf();
      const store = stores.store(issuer);
      for (let revision = 0; revision < 3; revision += 1) await store.commit(revision, [tombstone("a")], []);
      await store.load();
      const noticed = change(store, t);
      // As a standby that had not seen the last commit.
      server.sql("DELETE FROM jwksd.commits WHERE revision > 2; UPDATE jwksd.issuers SET revision = 2", name);
      await noticed;
      const says = /is at revision 2, and revision 3, which it had, is no longer there.*restart/;
      await refusal(store.load(), "ERR_RECORDS_INVALID", says);
      await refusal(store.commit(2, [tombstone("a")], []), "ERR_RECORDS_INVALID", says);
      // Others go on: the number is the same, the history is not.
      const other = stores.store(issuer);
      assert.equal((await other.load()).revision, 2);
      await other.commit(2, [tombstone("a")], []);
      await other.commit(3, [tombstone("a")], []);
      await refusal(store.load(), "ERR_RECORDS_INVALID", /is at revision 4, and revision 3, which it had/);
    });

    test("rows that somebody has damaged are errors that show nothing of them", async (t) => {
      const damages = [
        'UPDATE jwksd.keys SET record = \'{"kid":"a","jwe":"secret\'',
        "UPDATE jwksd.keys SET record = '\"secret\"'",
        'UPDATE jwksd.keys SET record = \'{"kid":"secret"}\'',
        "UPDATE jwksd.keys SET position = 7 WHERE position = 0",
        "UPDATE jwksd.leases SET name = ''",
        "UPDATE jwksd.leases SET signs_with = 'secret'",
        "UPDATE jwksd.leases SET until = 9223372036854775807",
        "UPDATE jwksd.leases SET publishes = -1",
      ];
      const name = database();
      const stores = await opened(t, server.url(name));
      for (const damage of damages) {
        // What was damaged before is another issuer's.
        const issuer = issuerOf();
        await stores.store(issuer).commit(0, [tombstone("a"), tombstone("b")], []);
        await stores.store(issuer).join({ id: "a", name: "a" }, 60_000);
        server.sql(damage, name);
        const error = await refusal(stores.store(issuer).load(), "ERR_RECORDS_INVALID", /damaged/);
        assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("secret"), damage);
      }
    });

    test("of two processes that race, one wins each of 30 rounds", async () => {
      const url = server.url(database());
      await (await postgresStores(url)).close();
      const racers = ["1", "2"].map(() => startChild("race", url));
      for (const racer of racers) assert.equal(await racer.next(), "ready");
      for (let round = 0; round < 30; round += 1) {
        for (const [index, racer] of racers.entries()) racer.tell(JSON.stringify([round, `${round} by ${index}`]));
        const said = await Promise.all(racers.map((racer) => racer.next()));
        assert.equal(said.filter((answer) => answer === "won").length, 1, JSON.stringify(said));
        const lost = said.find((answer) => answer !== "won") as { readonly code: string };
        assert.equal(lost.code, "ERR_STORE_CONFLICT");
      }
      for (const racer of racers) racer.process.kill("SIGKILL");
    });

    test("a process that is killed while it commits leaves whole commits", async (t) => {
      const url = server.url(database());
      const stores = await opened(t, url);
      let revision = 0;
      for (let round = 0; round < 3; round += 1) {
        const child = startChild("commits", url);
        for (let said = 0; said < 5 * (round + 1); said += 1) revision = (await child.next()) as number;
        child.process.kill("SIGKILL");
        await endChild(child);
        assert.ok((await checkSteps(stores.store("https://op.example"))) >= revision);
      }
    });
  });

  describe("another server", () => {
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

    test("one that crashes and starts again, and its standby", async (t) => {
      const store = (await opened(t, own.url(), 1_000)).store("https://op.example");
      await store.commit(0, [tombstone("a")], []);
      const standby = await startStandby(own);
      t.after(() => standby.stop());
      await eventually("the standby has it", () => standby.sql("SELECT revision FROM jwksd.issuers")[0] === "1");
      const there = (await opened(t, standby.url())).store("https://op.example");
      await refusal(there.load(), "ERR_STORE_UNAVAILABLE", /only be read, as a standby; name the primary/);
      await refusal(
        there.commit(1, [tombstone("a")], []),
        "ERR_STORE_UNAVAILABLE",
        /\(25006\).*standby; name the primary/,
      );
      own.sql("CREATE DATABASE readonly");
      own.sql("ALTER DATABASE readonly SET default_transaction_read_only = on");
      await refusal(postgresStores(own.url("readonly")), "ERR_STORE_UNAVAILABLE", /\(25006\)/);

      const lost = change(store, t);
      await own.kill();
      await lost;
      await refusal(store.load(), "ERR_STORE_UNAVAILABLE", /ECONNREFUSED/);
      const back = change(store, t);
      await own.start();
      await back;
      assert.deepEqual(await committed(store), { revision: 1, records: [tombstone("a")] });
      assert.equal(await store.commit(1, [tombstone("a")], []), 2);
    });

    test("a commit or renewal that no synchronous standby has is not done, and loading tells when one has", async (t) => {
      own.sql("CREATE DATABASE synchronous");
      // What its own settings take for written must not count either.
      own.sql("ALTER DATABASE synchronous SET synchronous_commit = off");
      const stores = await opened(t, own.url("synchronous"), 500);
      const [store, renewed] = [stores.store("https://op.example"), stores.store("https://renewed.example")];
      await store.commit(0, [tombstone("a")], []);
      await renewed.join({ id: "a", name: "a" }, 60_000);
      const wait = (names: string): void => {
        own.sql(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`);
        own.sql("SELECT pg_reload_conf()");
      };
      wait("nobody");
      await eventually("it waits", () => own.sql("SHOW synchronous_standby_names")[0] === "nobody");
      await refusal(store.commit(1, [tombstone("a")], []), "ERR_COMMIT_UNKNOWN", /may have been written/);
      const renewal = renewed.renew({ id: "a", publishes: 1, signsWith: [] }, 60_000);
      await refusal(renewal, "ERR_STORE_UNAVAILABLE", /try again/);
      assert.equal((await store.load()).revision, 1);
      wait("");
      await eventually("it is written", async () => (await store.load()).revision === 2);
    });

    const to = (host: string, query: string): string => `postgres://postgres@${host}:${own.port}/postgres?${query}`;
    const isEncrypted = async (url: string, variables: Readonly<Record<string, string>> = {}): Promise<boolean> => {
      Object.assign(process.env, variables);
      const stores = await postgresStores(url).finally(() => {
        for (const name of Object.keys(variables)) Reflect.deleteProperty(process.env, name);
      });
      const [row] = own.sql(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'jwksd'",
      );
      await stores.close();
      await eventually(
        "it has left",
        () => own.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'jwksd'")[0] === "0",
      );
      return row !== "0";
    };

    test("TLS as libpq's settings say", async () => {
      const crt = join(folder, "server.crt");
      assert.equal(await isEncrypted(to("127.0.0.1", "sslmode=disable")), false);
      for (const query of ["", "sslmode=prefer", "sslmode=require", `sslmode=verify-ca&sslrootcert=${crt}`]) {
        assert.equal(await isEncrypted(to("127.0.0.1", query)), true, query);
      }
      assert.equal(await isEncrypted(to("localhost", `sslmode=verify-full&sslrootcert=${crt}`)), true);
      await refusal(
        postgresStores(to("127.0.0.1", `sslmode=verify-full&sslrootcert=${crt}`)),
        "ERR_STORE_UNAVAILABLE",
        /certificate is for another name/,
      );
      const untrusted = /certificate is not trusted; see sslmode/;
      await refusal(postgresStores(to("localhost", "sslmode=verify-full")), "ERR_STORE_UNAVAILABLE", untrusted);
      const verified = { PGSSLMODE: "verify-full" };
      await refusal(isEncrypted(to("localhost", ""), verified), "ERR_STORE_UNAVAILABLE", untrusted);
      assert.equal(await isEncrypted(to("localhost", ""), { ...verified, PGSSLROOTCERT: crt }), true);
    });
  });
});
