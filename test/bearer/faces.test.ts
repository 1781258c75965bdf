import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { resource } from "./guards.ts";
import { nodeFaces } from "./node-faces.ts";
import { otherRuntimes } from "./other-runtimes.ts";
import { startProviders } from "./provider.ts";
import { check, send } from "./replies.ts";
import { rows } from "./requests.ts";

// Every request of the table goes through every face, on the wire, and each face must give the same status, header fields and body.

/** The metadata of the resource. @see RFC 9728 sections 3.1 and 3.2 */
async function checkMetadata(port: number, { issuer }: { readonly issuer: string }): Promise<void> {
  const text = JSON.stringify({
    resource,
    authorization_servers: [issuer],
    bearer_methods_supported: ["header"],
    scopes_supported: ["orders:read"],
  });
  const wellKnown = "/.well-known/oauth-protected-resource";
  for (const target of [wellKnown, `${wellKnown}/orders`, `${wellKnown}/orders?a`]) {
    const { etag = "", ...whole } = (await send(port, { target })).headers;
    const { body } = await send(port, { target });
    assert.deepEqual(
      [body, whole["content-type"], whole["access-control-allow-origin"]],
      [text, "application/json", "*"],
    );
    const head = await send(port, { method: "HEAD", target });
    assert.deepEqual([head.status, head.body, head.headers["content-length"]], [200, "", String(text.length)]);
    assert.equal((await send(port, { target, headers: [["If-None-Match", etag]] })).status, 304);
    assert.equal((await send(port, { method: "DELETE", target })).status, 405);
  }
  assert.equal((await send(port, { target: `${wellKnown}/other` })).status, 404);
}

for (const [name, start] of Object.entries({ ...nodeFaces, ...otherRuntimes })) {
  test(`${name}: ${rows.length} requests`, async (t: TestContext) => {
    const setup = await startProviders(t);
    const port = await start(t, setup);
    for (const row of rows) await t.test(`${name}: ${row.name} (${row.source})`, () => check(port, row, setup));
    await t.test(`${name}: the metadata of the resource (RFC 9728)`, () => checkMetadata(port, setup));
  });
}
