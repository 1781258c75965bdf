import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { decodeProtectedHeader } from "jose";
import packageJson from "../../package.json" with { type: "json" };
import { createProvider } from "../../src/index.ts";
import type { Jwk } from "../../src/keys/jwk/public-members.ts";
import { createKeyManager } from "../../src/rotation/index.ts";
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
  readonly keys: readonly Jwk[];
  readonly token: string;
}

const kidOf = (token: string) => decodeProtectedHeader(token).kid;

const files = (await readdir(import.meta.dirname)).filter((file) => file.endsWith(".json"));

test("the current version's store is recorded", () => assert.ok(files.includes(`${packageJson.version}.json`)));

for (const file of files) {
  describe(`the store of version ${file.replace(".json", "")}`, () => {
    test("is served and verifies as before, signs with the same key, and completes its rotation", async () => {
      const { issuer, wrappingKeys, text, ...recorded } = JSON.parse(
        await readFile(join(import.meta.dirname, file), "utf8"),
      ) as Recorded;
      let { at } = recorded;
      const clock = { now: () => at, setTimer: () => () => {} };
      const store = new WrittenStore(clock);
      store.put(text);
      const start = () => createKeyManager({ issuer, store, wrappingKeys, clock });
      const manager = await start();
      const provider = await createProvider({ keys: manager, clock });
      assert.deepEqual((await provider.jwkSet()).keys, recorded.keys);
      await provider.verify(recorded.token, { audience: "api" });
      const token = await provider.sign({ sub: "bob", aud: "api" }, { lifetimeSeconds: 300 });
      assert.equal(kidOf(token), kidOf(recorded.token));
      await manager.rotate({ now: true });
      await manager.close();

      at += 1;
      const restarted = await start();
      const provided = await createProvider({ keys: restarted, clock });
      await provided.verify(token, { audience: "api" });
      const next = kidOf(await provided.sign({ sub: "bob", aud: "api" }, { lifetimeSeconds: 300 }));
      assert.notEqual(next, kidOf(token));
      assert.ok(recorded.keys.some(({ kid }) => kid === next));
      await restarted.close();
    });
  });
}
