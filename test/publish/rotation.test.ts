// A rotation over a copy, as the libraries of relying parties live through it. Time is simulated; the folder, its server and the libraries are real.
import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeJwt, decodeProtectedHeader } from "jose";
import type { Copy } from "../../src/rotation/manager/copies.ts";
import { documentSetOf } from "../../src/service/copies/documents.ts";
import { folderTarget } from "../../src/service/copies/folder.ts";
import { createCopyWriter } from "../../src/service/copies/copy-writer.ts";
import { publicHalves } from "../../src/service/endpoint/public-keys.ts";
import { World } from "../manager/world.ts";
import { hour, second } from "../rotation/key-records.ts";
import { serveFolder } from "../support/folder-server.ts";
import { temporaryFolder } from "../support/service.ts";
import { audience, nonce, verifiers } from "../support/verifier-matrix.ts";

const policy = {
  announceForSeconds: 7860,
  cacheSlackSeconds: 0,
  clockSkewSeconds: 60,
  maxTokenLifetimeSeconds: 3600,
  maxStaleSeconds: 600,
};

test("no verifier refuses a token in a rotation that a server which is away delays", { timeout: 60_000 }, async (t) => {
  const folder = await temporaryFolder(t);
  const server = await serveFolder(t, folder);
  const issuer = server.url;
  const site = { issuer, cors: true, discovery: true };
  const target = folderTarget(folder, "a folder", site);
  t.after(() => target.close());
  const publish = createCopyWriter({
    target,
    verifyUrl: issuer,
    purge: async () => {},
    onPublished() {},
    signal: new AbortController().signal,
  });
  const copy: Copy = {
    name: target.name,
    async update(keysets, { isRotating }) {
      const keys = publicHalves(keysets, isRotating);
      await publish(await documentSetOf(keys, site, isRotating));
    },
  };

  const world = new World();
  t.mock.timers.enable({ apis: ["Date"], now: world.clock.now() });
  const signer = await world.start({ issuer, policy });
  await target.open();
  const publisher = await world.startCopy(copy, { issuer, policy });
  assert.ok(publisher.isPublished);

  const provider = { issuer, jwksUri: `${issuer}/jwks` };
  const longLived = verifiers.map(({ name, make }) => ({ name, verify: make(provider) }));
  let tokens: string[] = [];
  const signed = new Map<string, number>();
  const pass = async (steps: number): Promise<void> => {
    for (let step = 1; step <= steps; step += 1) {
      await world.pass(0.7 * hour);
      const now = world.clock.now();
      t.mock.timers.setTime(now);
      const token = await signer.provider.sign({ sub: "subject", aud: audience, nonce }, { lifetimeSeconds: 3600 });
      tokens = [...tokens, token].filter((each) => (decodeJwt(each).exp ?? 0) * second > now);
      const { kid = "" } = decodeProtectedHeader(token);
      signed.set(kid, (signed.get(kid) ?? 0) + 1);
      // A server that is away answers nobody, whatever is rotated.
      if (server.instead !== undefined) continue;
      const fresh = verifiers
        .filter(() => step % 3 === 0)
        .map(({ name, make }) => ({ name: `${name}, with an empty cache`, verify: make(provider) }));
      for (const { name, verify } of [...longLived, ...fresh]) {
        for (const each of tokens) {
          await verify(each).catch((error: unknown) => assert.fail(`${name} in step ${step}: ${String(error)}`));
        }
      }
    }
  };

  await pass(1);
  server.instead = { status: 503 };
  const key = await signer.manager.makeKey("sig");
  await world.run(signer, { type: "rotate", use: "sig", key });
  await pass(1);
  server.instead = undefined;
  // It is announced for longer than it has to be, but has not been read for as long.
  await pass(2);
  assert.equal(signed.get(key.kid), undefined, "the announcement counts from when it was read back");
  await pass(4);
  assert.ok((signed.get(key.kid) ?? 0) > 1);
  assert.equal(signed.size, 2);
  const states = signer.manager.records.map(({ state }) => state);
  assert.deepEqual(states, ["removed", "active"]);
  await world.stop({ manager: publisher });
  await world.stop(signer);
});
