import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { parse } from "yaml";
import { newWrappingKey } from "../support/managed.ts";
import { skipWithout } from "../support/parts.ts";
import type { PostgresServer } from "../support/postgres.ts";
import { freePort, runCli, startService, temporaryFolder } from "../support/service.ts";
import { startNginx } from "../support/static-servers.ts";

interface Compose {
  readonly services: Readonly<Record<string, { readonly environment: Readonly<Record<string, string>> }>>;
  readonly configs: { readonly nginx: { readonly content: string } };
}

/** Tests the services of ops/compose.yml without containers: both replicas with its settings, and nginx with its configuration. */
export function checkCompose(postgres: () => PostgresServer): void {
  test(
    "the services in ops/compose.yml rotate keys and keep serving without one replica",
    { skip: skipWithout("nginx") },
    async (t) => {
      const text = await readFile(new URL("../../ops/compose.yml", import.meta.url), "utf8");
      const { services, configs } = parse(text, { merge: true }) as Compose;
      const server = postgres();
      server.sql("CREATE DATABASE compose OWNER locked");
      const secrets: Readonly<Record<string, string>> = {
        POSTGRES_PASSWORD: "right",
        JWKSD_WRAPPING_KEYS: newWrappingKey(),
      };
      const interpolated = (value: string): string =>
        value
          .replaceAll(/\$\{(\w+):\?\}/g, (_, name: string) => secrets[name] ?? assert.fail(name))
          .replaceAll(/\$\{\w+:-(.*?)\}/g, "$1");
      t.after(() => delete process.env["PGPASSWORD"]);
      let proxy = configs.nginx.content.replaceAll("$$", "$");
      const port = await freePort();
      const replicas = [];
      for (const name of ["jwksd-a", "jwksd-b"]) {
        const settings = Object.entries(services[name]?.environment ?? {});
        const environment = {
          ...(Object.fromEntries(settings.map(([key, value]) => [key, interpolated(value)])) as { PGPASSWORD: string }),
          JWKSD_STORE: server.url("compose").replace("postgres@", "locked@"),
          JWKSD_DATA: await temporaryFolder(t),
        };
        // libpq reads its settings from the process's environment.
        Object.assign(process.env, { PGPASSWORD: environment.PGPASSWORD });
        const service = await startService(t, ["--replica-name", name], environment);
        replicas.push({ ...service, environment });
        assert.ok(proxy.includes(`${name}:9900`));
        proxy = proxy.replace(`${name}:9900`, `127.0.0.1:${service.port}`);
      }
      await startNginx(t, proxy.replace("listen 80;", `listen 127.0.0.1:${port};`), port);

      const get = (headers: Record<string, string> = {}, method = "GET") =>
        fetch(`http://127.0.0.1:${port}/jwks`, { method, headers });
      const kids = async (): Promise<string[]> => {
        const { keys } = (await (await get()).json()) as { keys: { kid: string }[] };
        return keys.map(({ kid }) => kid);
      };
      const { status, headers } = await get({}, "HEAD");
      assert.equal(status, 200);
      assert.equal(headers.get("content-type"), "application/jwk-set+json");
      const etag = headers.get("etag") ?? "";
      for (let count = 0; count < 4; count++) assert.equal((await get({ "If-None-Match": etag })).status, 304);

      const [one] = replicas;
      const rotated = await runCli(t, ["rotate", "--wait", "20"], one?.environment);
      assert.equal(rotated.code, 0, rotated.stderr);
      assert.match(rotated.stdout, /2 of 2 have caught up/);
      const both = await kids();
      assert.equal(both.length, 2);
      await one?.stop();
      for (let count = 0; count < 4; count++) assert.deepEqual(await kids(), both);
    },
  );
}
