import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { startEtcd } from "../support/etcd.ts";
import { newWrappingKey } from "../support/managed.ts";
import { startMariadb } from "../support/mariadb.ts";
import { skipWithout } from "../support/parts.ts";
import { startRedis } from "../support/redis.ts";
import { type Scope, eventually, runCli, startService, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";

const issuer = "https://login.example.com";

/** How a database is called, what it needs, and the URL by which its keys are found. */
const databases: readonly (readonly [name: string, parts: readonly string[], start: (t: Scope) => Promise<string>])[] =
  [
    ["Redis", ["redis-server"], async (t) => `redis://:s3cret@127.0.0.1:${(await startRedis(t)).port}`],
    ["MariaDB", ["mariadbd"], async (t) => `mysql://jwksd:s3cret@127.0.0.1:${(await startMariadb(t)).port}/jwksd`],
    [
      "etcd",
      ["etcd"],
      async (t) => `etcd://${(await startEtcd(t)).map(({ daemon }) => `127.0.0.1:${daemon.port}`).join()}`,
    ],
  ];

async function kidsOf(port: number): Promise<string[]> {
  const { keys } = (await (await fetch(`http://127.0.0.1:${port}/jwks`)).json()) as { keys: { kid: string }[] };
  return keys.map(({ kid }) => kid);
}

// What each of them does is in test/contract.
for (const [name, parts, start] of databases.slice(0, soak(databases.length, 1))) {
  describe(`keys in ${name}`, { skip: skipWithout(...parts) }, () => {
    test("two services share them, commands act on them, and no message has a password", async (t) => {
      const url = await start(t);
      const environment = { JWKSD_WRAPPING_KEYS: newWrappingKey(), JWKSD_STORE: url };
      const args = ["--issuer", issuer, "--data", await temporaryFolder(t)];
      const services = [await startService(t, args, environment), await startService(t, args, environment)];
      const [first, second] = await Promise.all(services.map(({ port }) => kidsOf(port)));
      assert.equal(first?.length, 1);
      assert.deepEqual(second, first);
      const rotated = await runCli(t, ["rotate", ...args.slice(0, 2)], environment);
      assert.equal(rotated.code, 0, rotated.stderr);
      for (const { port } of services) await eventually("the next key", async () => (await kidsOf(port)).length === 2);
      const replicas = await runCli(t, ["replicas", ...args.slice(0, 2)], environment);
      assert.equal(replicas.stdout.match(/ the newest /g)?.length, 2, replicas.stdout);
      const anybodys = await runCli(t, ["keys"], environment);
      assert.match(anybodys.stderr, /--issuer .*\[ERR_OPTION_INVALID\]/);
      const secret = url.includes("s3cret") ? url : url.replace("//", "//jwksd:s3cret@");
      const onTheLine = await runCli(t, ["keys", "--store", secret], environment);
      assert.match(onTheLine.stderr, /--store must hold no password/);
      const said = [rotated, replicas, anybodys, onTheLine].map(({ stdout, stderr }) => stdout + stderr).join("\n");
      assert.doesNotMatch(said + services.map(({ log }) => JSON.stringify(log)).join("\n"), /s3cret/);
    });
  });
}
