// Writes two stores of this version for the upgrade test of later versions: VERSION.json, in the middle of a rotation; and VERSION-decommissioned.json,
// whose issuer has been decommissioned (format 2). A release adds both (docs/releases.md).

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { createProvider } from "../../src/index.ts";
import { createKeyManager } from "../../src/rotation/index.ts";
import { newWrappingKey } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";

const issuer = "https://op.example";
const at = Date.now();
const clock = { now: () => at, setTimer: () => () => {} };
const store = new WrittenStore(clock);
const wrappingKeys = newWrappingKey();
const manager = await createKeyManager({ issuer, store, wrappingKeys, clock, requireStore: false });
await manager.rotate({ now: true });
await manager.rotate();
const provider = await createProvider({ keys: manager, clock });
const token = await provider.sign({ sub: "alice", aud: "api" }, { lifetimeSeconds: 300 });
await record("");
await manager.decommission();
await record("-decommissioned");
await manager.close();

async function record(kind: string): Promise<void> {
  const { keys } = await provider.jwkSet();
  const recorded = { issuer, at, wrappingKeys, text: store.text, keys, token };
  const file = join(import.meta.dirname, `${packageJson.version}${kind}.json`);
  await writeFile(file, `${JSON.stringify(recorded, null, 2)}\n`);
}
