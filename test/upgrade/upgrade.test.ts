import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { decodeProtectedHeader } from "jose";
import packageJson from "../../package.json" with { type: "json" };
import { type Provider, createProvider } from "../../src/index.ts";
import type { PublishedJwk } from "../../src/keys/jwk/public-members.ts";
import { parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { createKeyManager } from "../../src/rotation/index.ts";
import { placeholderKey } from "../../src/rotation/rules/decommission.ts";
import { WrittenStore } from "../support/written-store.ts";

// record.ts writes the files.

interface Recorded {
  readonly issuer: string;
  /** Time at which it was recorded, in milliseconds. */
  readonly at: number;
  readonly wrappingKeys: string;
  /** Stored document. */
  readonly text: string;
  /** Keys that were served. */
  readonly keys: readonly PublishedJwk[];
  readonly token: string;
}

const read = async (file: string): Promise<Recorded> =>
  JSON.parse(await readFile(join(import.meta.dirname, file), "utf8")) as Recorded;
const kidOf = (token: string) => decodeProtectedHeader(token).kid;

const files = (await readdir(import.meta.dirname)).filter((file) => file.endsWith(".json"));

test("the repository contains stores from the current version, in both formats", async () => {
  const formats = [];
  for (const kind of ["", "-decommissioned"]) {
    const { text } = await read(`${packageJson.version}${kind}.json`);
    formats.push(parseDocument(unsealed(text)).format);
  }
  assert.deepEqual(formats, [1, 2]);
});

/** Opens a recorded store. `start` starts a manager and a provider on it; `pass` moves the clock. */
async function open(file: string) {
  const { issuer, wrappingKeys, text, ...recorded } = await read(file);
  let { at } = recorded;
  const clock = { now: () => at, setTimer: () => () => {} };
  const store = new WrittenStore(clock);
  store.put(text);
  const start = async () => {
    const manager = await createKeyManager({ issuer, store, wrappingKeys, clock });
    return { manager, provider: await createProvider({ keys: manager, clock }) };
  };
  const pass = (ms: number) => (at += ms);
  const started = await start();
  assert.deepEqual((await started.provider.jwkSet()).keys, recorded.keys);
  await started.provider.verify(recorded.token, { audience: "api" });
  return { recorded, ...started, start, pass };
}

const sign = ({ sign }: Provider) => sign({ sub: "bob", aud: "api" }, { lifetimeSeconds: 300 });

for (const file of files.filter((file) => !file.endsWith("-decommissioned.json"))) {
  describe(`a service with a store from version ${file.replace(".json", "")}`, () => {
    test("serves and verifies as before, signs with the same key, and completes its rotation", async () => {
      const { recorded, manager, provider, start, pass } = await open(file);
      const token = await sign(provider);
      assert.equal(kidOf(token), kidOf(recorded.token));
      await manager.rotate({ now: true });
      await manager.close();

      pass(1);
      const restarted = await start();
      await restarted.provider.verify(token, { audience: "api" });
      const next = kidOf(await sign(restarted.provider));
      assert.notEqual(next, kidOf(token));
      assert.ok(recorded.keys.some(({ kid }) => kid === next));
      await restarted.manager.close();
    });
  });
}

for (const file of files.filter((file) => file.endsWith("-decommissioned.json"))) {
  describe(`a service with a decommissioned issuer's store from version ${file.replace("-decommissioned.json", "")}`, () => {
    test("serves and verifies as before, signs nothing, and removes its last key", async () => {
      const { manager, provider, start, pass } = await open(file);
      await assert.rejects(sign(provider), { code: "ERR_SIGNER_DECOMMISSIONED" });
      await manager.close();

      pass(7 * 86_400_000);
      const restarted = await start();
      assert.deepEqual(
        (await restarted.provider.jwkSet()).keys.map(({ kid }) => kid),
        [placeholderKey.kid],
      );
      await assert.rejects(sign(restarted.provider), { code: "ERR_SIGNER_DECOMMISSIONED" });
      await restarted.manager.close();
    });
  });
}
