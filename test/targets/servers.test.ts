// A `jwksd publish` folder behind real web servers, configured as in docs/publish.md, compared with `jwksd serve` on the wire.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { type Answer, send } from "../support/caches.ts";
import { named } from "../support/keys.ts";
import { skipWithout } from "../support/parts.ts";
import { freePort, runCli, startService, temporaryFolder } from "../support/service.ts";
import { type StaticServer, staticServers } from "../support/static-servers.ts";

/** The headers that are the same on every server. */
const fields = [
  "content-type",
  "content-length",
  "cache-control",
  "access-control-allow-origin",
  "access-control-expose-headers",
  "x-content-type-options",
] as const;
const essence = ({ status, headers, body }: Answer) => ({
  status,
  body,
  ...Object.fromEntries(fields.map((name) => [name, headers[name]])),
});

for (const server of staticServers) {
  describe(
    `a published folder served by ${server.name}`,
    { skip: skipWithout(server.program), timeout: 180_000 },
    () => {
      test("gets the same responses as from `jwksd serve`, with and without rotation mode, needs no reload, and exposes no other files", async (t) => {
        const { publish, paths, port, direct } = await start(t, server);
        for (const args of [[], ["--rotation-mode"], []]) {
          assert.deepEqual((await publish(args)).code, 0);
          const service = await direct(args);
          for (const path of paths) {
            for (const method of ["GET", "HEAD"]) {
              const [ours, theirs] = [await send(service, { path, method }), await send(port, { path, method })];
              assert.deepEqual(essence(theirs), essence(ours), `${method} ${path} ${args.join()}`);
            }
            const { headers } = await send(port, { path });
            assert.match(String(headers.etag), /^"[^"]+"$/, "a strong validator");
            const again = await send(port, { path, headers: { "If-None-Match": String(headers.etag) } });
            assert.deepEqual([again.status, again.body], [304, ""]);
            assert.equal(again.headers["cache-control"], headers["cache-control"]);
            const other = await send(port, { path, method: "POST" });
            assert.match(`${other.status} ${other.headers["cache-control"]}`, /^40[45] undefined$/);
          }
        }
        for (const path of ["/.jwksd/lock", "/.jwksd/rotation", "/", "/jwks/"]) {
          const { body, status } = await send(port, { path });
          assert.doesNotMatch(body, /jwksd/, `${path} ${status}`);
        }
      });
    },
  );
}

async function start(t: TestContext, server: StaticServer) {
  const [folder, own, port] = [await temporaryFolder(t), await temporaryFolder(t), await freePort()];
  const keys = join(own, "keys.json");
  await writeFile(keys, JSON.stringify({ keys: [named("one"), named("two")] }));
  const common = ["--keys", keys, "--issuer", `http://127.0.0.1:${port}`];
  const publish = (args: readonly string[]) =>
    runCli(t, ["publish", folder, ...common, "--wait", "5", "--log-level", "silent", ...args]);
  // nginx looks for the folder when it starts.
  assert.equal((await runCli(t, ["publish", folder, ...common, "--wait", "0"])).code, 3);
  await server.start(t, { folder, port });
  const direct = async (args: readonly string[]) => (await startService(t, [...common, ...args])).port;
  const paths = ["/jwks", "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"];
  return { publish, port, direct, paths };
}
