import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, after, before, describe, test } from "node:test";
import type { Provider } from "../../src/index.ts";
import type { KeyManager } from "../../src/rotation/index.ts";
import { liveRecords } from "../../src/rotation/rules/key-records.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { startEtcd } from "../support/etcd.ts";
import { documentOf, newWrappingKey } from "../support/managed.ts";
import { startMariadb } from "../support/mariadb.ts";
import { skipWithout } from "../support/parts.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { startRedis } from "../support/redis.ts";
import { sample } from "../support/samples.ts";
import {
  eventually,
  runCli,
  startService,
  temporaryFolder,
  type Scope,
  cliDone,
  cliRefused,
} from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { checkCompose } from "./compose.ts";

const skip = skipWithout("initdb");
const issuer = "https://login.example.com";

/** Returns the number of this machine's connections to a server. */
async function connectionsTo(url: string): Promise<number> {
  const ports = Array.from(url.matchAll(/(?<=:)\d+(?=[,/]|$)/g), ([port]) =>
    Number(port).toString(16).padStart(4, "0"),
  );
  const remote = new RegExp(`^ *\\d+: \\S+ \\S+:(?:${ports.join("|")}) 01 `, "gim");
  return [...(await readFile("/proc/net/tcp", "utf8")).matchAll(remote)].length;
}

/** Loads the page's module again and again, with a store of the given kind. */
async function checkReloads(t: TestContext, url: string, kind: string): Promise<void> {
  const path = await sample(t, "examples/docs/reload.mts", {
    'import { postgresStore } from "jwksd/store/postgres"': `import { ${kind}Store } from "jwksd/store/${kind}"`,
    postgresStore: `${kind}Store`,
    ...(kind === "etcd" && {
      "(DATABASE_URL,": '(DATABASE_URL.slice("etcd://".length).split(",").map((host) => "http://" + host),',
    }),
    "const manager": "const manager = (globalThis as any).manager",
    "const store": "const store = (globalThis as any).store",
  });
  const kept = globalThis as unknown as { provider?: Promise<Provider>; manager: KeyManager; store: Register };
  Object.assign(process.env, { DATABASE_URL: url, JWKSD_WRAPPING_KEYS: newWrappingKey() });
  t.after(async () => {
    for (const name of ["DATABASE_URL", "JWKSD_WRAPPING_KEYS"]) delete process.env[name];
    delete kept.provider;
    await kept.manager.close();
    await kept.store.close?.();
  });
  for (let loads = 0; loads <= 20; loads += 1) {
    const { provider } = (await import(`${path}?${loads}`)) as { provider: Provider };
    await provider.sign({}, { lifetimeSeconds: 60 });
  }
  const connections = await connectionsTo(url);
  t.diagnostic(`${connections} connections`);
  assert.ok(connections >= 1 && connections <= 4, `${connections} connections`);
}

let server: PostgresServer;
let databases = 0;

/** Creates a database. Returns its URL. */
function database(): string {
  const name = `e2e_${(databases += 1)}`;
  server.sql(`CREATE DATABASE ${name}`);
  return server.url(name);
}

async function kidsOf(port: number): Promise<string[]> {
  const { keys } = (await (await fetch(`http://127.0.0.1:${port}/jwks`)).json()) as { keys: { kid: string }[] };
  return keys.map(({ kid }) => kid);
}

async function withStore<T>(url: string, use: (store: Register) => Promise<T>): Promise<T> {
  const store = postgresStore(url, { issuer });
  try {
    return await use(store);
  } finally {
    await store.close?.();
  }
}

describe("keys in PostgreSQL", { skip }, () => {
  before(async () => {
    server = await startPostgres();
  });
  after(() => server.stop());

  checkCompose(() => server);

  test("after the store's clock has jumped, no command takes a step that might be premature, unless forced to", async (t) => {
    const url = database();
    const name = new URL(url).pathname.slice(1);
    server.sql("CREATE SCHEMA fake; CREATE TABLE fake.ahead AS SELECT interval '0' AS by", name);
    server.sql(
      `CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
       AS 'SELECT pg_catalog.clock_timestamp() + by FROM fake.ahead'`,
      name,
    );
    server.sql(`ALTER DATABASE ${name} SET search_path = fake, pg_catalog, public`);
    const environment = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
    const args = ["--store", url, "--issuer", issuer, "--data", await temporaryFolder(t)];
    const service = await startService(t, args, environment);
    await cliDone(t, ["rotate", ...args], environment);
    const next = () => withStore(url, async (store) => liveRecords((await documentOf(store)).records).at(-1));
    await eventually("the propagation period has begun", async () => (await next())?.publishedAt !== undefined);
    const { kid = "" } = (await next()) ?? {};
    // According to that clock, the propagation period is over.
    server.sql("UPDATE fake.ahead SET by = '24.5 hours'", name);
    const command = ["keys", "activate", kid, ...args];
    for (const more of [[], ["--dry-run"]]) {
      assert.match(
        await cliRefused(t, [...command, ...more], environment),
        /300 s \(--clock-skew-seconds\).*--force --yes.*\[ERR_TOO_EARLY\]\n$/,
      );
    }
    assert.equal((await next())?.state, "announced");
    await cliDone(t, [...command, "--force", "--yes"], environment);
    assert.equal((await next())?.state, "active");
    await service.stop();
  });

  test("missing and invalid settings are reported", async (t) => {
    const url = database();
    const wrapping = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
    const secret = url.replace("postgres@", "postgres:sesame@");
    const rows: [args: string[], environment: Record<string, string>, says: RegExp][] = [
      [["keys", "--store", url], wrapping, /--issuer \(JWKSD_ISSUER\) must be set, because/],
      [["rotate", "--store", url, "--issuer", issuer], wrapping, /the store has no keys for .*\[ERR_STORE_EMPTY\]/],
      [["keys", "--store", secret], wrapping, /--store must not contain a password.*JWKSD_STORE.*PGPASSWORD/],
      [["keys", "--store", `${url}?sslpassword=sesame`], wrapping, /--store must not contain a password/],
      [["keys", "--store", "mysql://user:ses/ame@db/name"], wrapping, /--store must be sqlite:PATH.*%2F/],
      [["store", "migrate", "--to", secret], wrapping, /--to must not contain a password.*JWKSD_TO/],
      [["store", "migrate", "--to", "sesame"], wrapping, /--to must be sqlite:PATH/],
      [["store", "migrate"], { ...wrapping, JWKSD_TO: "sesame" }, /JWKSD_TO must be sqlite:PATH/],
      [["store", "migrate"], wrapping, /--to \(JWKSD_TO\) must name the destination store/],
    ];
    for (const [args, environment, says] of rows) {
      const stderr = await cliRefused(t, args, environment);
      assert.match(stderr, says);
      assert.doesNotMatch(stderr, /sesame|ses\/ame/);
    }
    const schemas = "SELECT 1 FROM pg_namespace WHERE nspname = 'jwksd'";
    assert.match(
      (await runCli(t, ["keys", "--store", url, "--issuer", issuer], wrapping)).stdout,
      /^There are no keys/,
    );
    assert.deepEqual(
      server.sql(schemas, new URL(url).pathname.slice(1)),
      [],
      "commands that only read create no schema",
    );
    const args = ["rotate", "--store", url, "--issuer", issuer];
    assert.match((await runCli(t, args)).stderr, /need the same wrapping key.*\[ERR_WRAPPING_KEY_MISSING\]/);
    const data = await temporaryFolder(t);
    await (await startService(t, ["--store", url, "--issuer", issuer, "--data", data], wrapping)).stop();
    assert.match(
      (await runCli(t, args)).stderr,
      /wrapped with the wrapping key [\w-]{43}, which was not given; set --wrapping-key-file .*\[ERR_WRAPPING_KEY_MISSING\]/,
    );
  });

  test("with --require-store, a command creates neither a schema nor an issuer, and does not generate a key if the issuer is mistyped", async (t) => {
    const url = database();
    const env = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
    const at = (issuer: string) => ["--store", url, "--issuer", issuer];
    const data = ["--data", await temporaryFolder(t)];
    const refused = async (args: readonly string[], says: RegExp): Promise<void> => {
      const stderr = await cliRefused(t, args, env);
      assert.match(stderr, says);
    };
    const serve = ["serve", "--port", "0", "--admin", "off", "--require-store", ...data];
    await refused([...serve, ...at(issuer)], /the database in --store has no keys for https:.*ERR_STORE_EMPTY/);
    const schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'jwksd'";
    assert.deepEqual(server.sql(schemas, new URL(url).pathname.slice(1)), ["0"]);
    await (await startService(t, [...at(issuer), ...data], env)).stop();

    const mistyped = at("https://logn.example.com");
    const none = /nothing was changed, because .* no keys for https:\/\/logn\..*--issuer.*\[ERR_STORE_EMPTY\]/;
    for (const command of [["rotate"], ["rotate", "--dry-run"], ["keys", "announce"]])
      await refused([...command, ...mistyped], none);
    const planned = await runCli(t, ["plan", ...mistyped], env);
    assert.match(planned.stderr, /the store has no keys for https:\/\/logn\.example\.com/);
    await refused([...serve, ...mistyped], /no keys for https:\/\/logn.*ERR_STORE_EMPTY/);
    await (await startService(t, [...at(issuer), ...data, "--require-store"], env)).stop();
  });

  test("a user who cannot create tables can use the tables that the printed SQL creates", async (t) => {
    const url = database();
    const { stdout } = await runCli(t, ["store", "sql"]);
    server.sql(stdout.replaceAll(":user", "locked"), new URL(url).pathname.slice(1));
    const args = [
      "--store",
      url.replace("postgres@", "locked@"),
      "--issuer",
      issuer,
      "--data",
      await temporaryFolder(t),
    ];
    const environment = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
    // libpq reads its settings from the process's environment.
    process.env["PGPASSWORD"] = "right";
    t.after(() => delete process.env["PGPASSWORD"]);
    const service = await startService(t, args, environment);
    assert.equal((await kidsOf(service.port)).length, 1);
    await service.stop();
  });

  test("a module keeps its connections when a dev server reloads it", (t) => checkReloads(t, database(), "postgres"));

  describe("jwksd store migrate", () => {
    test("refuses a store that it cannot verify and copies nothing", async (t) => {
      const folder = await temporaryFolder(t);
      const service = await startService(t, ["--data", folder]);
      await service.stop();
      const url = database();
      const from = ["store", "migrate", "--store", `sqlite:${folder}/keys.db`, "--to", url];
      await writeFile(join(folder, "other.key"), newWrappingKey(), { mode: 0o600 });
      const rows: [args: string[], says: RegExp][] = [
        [[...from, "--issuer", issuer], /to no issuer yet.*jwksd serve --issuer.*\[ERR_STORE_ISSUER\]/],
        [
          [...from, "--issuer", issuer, "--wrapping-key-file", join(folder, "other.key")],
          /\[ERR_WRAPPING_KEY_MISSING\]/,
        ],
        [["store", "migrate", "--store", `sqlite:${folder}/none.db`, "--to", url], /there is no store at .*none\.db/],
        [["store", "migrate", "--store", url, "--to", `sqlite:${folder}/new.db`, "--issuer", issuer], /has no keys/],
      ];
      for (const [args, says] of rows) {
        assert.match(await cliRefused(t, args), says);
      }
      await withStore(url, async (store) => assert.equal((await store.read()).version, undefined));
    });
  });
});

/** Databases: name, kind of store, required programs, and a function that starts one and returns its URL. */
const others: readonly (readonly [
  name: string,
  kind: string,
  parts: readonly string[],
  start: (t: Scope) => Promise<string>,
])[] = [
  ["Redis", "redis", ["redis-server"], async (t) => `redis://:s3cret@127.0.0.1:${(await startRedis(t)).port}`],
  [
    "MariaDB",
    "mysql",
    ["mariadbd"],
    async (t) => `mysql://jwksd:s3cret@127.0.0.1:${(await startMariadb(t)).port}/jwksd`,
  ],
  [
    "etcd",
    "etcd",
    ["etcd"],
    async (t) => `etcd://${(await startEtcd(t)).map(({ daemon }) => `127.0.0.1:${daemon.port}`).join()}`,
  ],
];

// test/contract tests the stores themselves.
for (const [name, kind, parts, start] of others.slice(0, soak(others.length, 1))) {
  describe(`keys in ${name}`, { skip: skipWithout(...parts) }, () => {
    test("can be shared by two services, changed by commands and copied from a data folder, all without a password in any message", async (t) => {
      const url = await start(t);
      const wrapping = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
      const args = ["--issuer", issuer, "--data", await temporaryFolder(t)];
      await (await startService(t, args, wrapping)).stop();
      const moved = await cliDone(t, ["store", "migrate", ...args], { ...wrapping, JWKSD_TO: url });
      const environment = { ...wrapping, JWKSD_STORE: url };
      const services = [await startService(t, args, environment), await startService(t, args, environment)];
      const [first, second] = await Promise.all(services.map(({ port }) => kidsOf(port)));
      assert.equal(first?.length, 1);
      assert.deepEqual(second, first);
      const rotated = await cliDone(t, ["rotate", ...args.slice(0, 2)], environment);
      for (const { port } of services) await eventually("the next key", async () => (await kidsOf(port)).length === 2);
      const replicas = await runCli(t, ["replicas", ...args.slice(0, 2)], environment);
      assert.equal(replicas.stdout.match(/ the latest /g)?.length, 2, replicas.stdout);
      const withoutIssuer = await runCli(t, ["keys"], environment);
      assert.match(withoutIssuer.stderr, /--issuer .*\[ERR_OPTION_INVALID\]/);
      const secret = url.includes("s3cret") ? url : url.replace("//", "//jwksd:s3cret@");
      const withPassword = await runCli(t, ["keys", "--store", secret], environment);
      assert.match(withPassword.stderr, /--store must not contain a password/);
      const output = [rotated, replicas, withoutIssuer, withPassword, moved]
        .map(({ stdout, stderr }) => stdout + stderr)
        .join("\n");
      assert.doesNotMatch(output + services.map(({ log }) => JSON.stringify(log)).join("\n"), /s3cret/);
    });

    test("a module keeps its connections when a dev server reloads it", async (t) =>
      checkReloads(t, await start(t), kind));
  });
}
