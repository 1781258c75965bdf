// Publishers are killed at any moment while readers read continuously.

import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { folderTarget } from "../../src/service/targets/folder.ts";
import { temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { s3Stub } from "../support/stubs/s3.ts";
import { site, documentSetAt } from "./kill-documents.ts";

const child = fileURLToPath(new URL("kill-child.ts", import.meta.url));

/** Reads a document as a client; `undefined` if it does not exist yet. */
type Read = (path: string) => string | undefined;

/** Checks that the set and the discovery document match. @returns the number of the set; -1 before the first */
function checkPair(read: Read, hasShortCache: (set: { readonly isShort: boolean }) => boolean): number {
  // As relying parties do: the discovery document first.
  const discovery = read(".well-known/openid-configuration");
  const text = read("jwks");
  if (text === undefined) {
    assert.equal(discovery, undefined, "it points to a set that does not exist");
    return -1;
  }
  const set = JSON.parse(text) as { number: number; isShort: boolean };
  assert.equal(text, Buffer.from(documentSetAt(set.number).documents[0]?.body ?? []).toString());
  assert.ok(hasShortCache(set), `set ${set.number} has the long Cache-Control`);
  if (discovery !== undefined) {
    assert.partialDeepStrictEqual(JSON.parse(discovery), { issuer: site.issuer, jwks_uri: `${site.issuer}/jwks` });
  }
  return set.number;
}

async function startPublisher(t: TestContext, where: string, number: number): Promise<ChildProcess> {
  const process = fork(child, [where, String(number)], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  t.after(() => void process.kill("SIGKILL"));
  await once(process, "message");
  return process;
}

/** Reads for a while, then kills the publisher. */
async function readAndKill(process: ChildProcess, forMs: number, read: () => number): Promise<void> {
  const end = performance.now() + forMs;
  // At least one set must be published.
  for (let latest = -1; performance.now() < end || latest < 1;) {
    const number = read();
    assert.ok(number >= latest, `set ${latest} was replaced by set ${number}`);
    latest = number;
    await turn();
  }
  process.kill("SIGKILL");
  await once(process, "exit");
}

test("a folder is consistent at any moment, even after kill -9", async (t) => {
  const folder = await temporaryFolder(t);
  const marker = join(folder, ".jwksd/rotation");
  const read: Read = (path) => {
    const file = join(folder, path);
    return existsSync(file) ? readFileSync(file, "utf8") : undefined;
  };
  // The marker and the set are two files, so they are compared only while no process writes.
  const readNumber = (isStill: boolean): number =>
    checkPair(read, ({ isShort }) => !isStill || !isShort || existsSync(marker));
  let latest = -1;
  for (let round = 0; round < (isSoak ? 30 : 1); round += 1) {
    const publisher = await startPublisher(t, folder, latest + 1);
    await readAndKill(publisher, Math.random() * 25, () => readNumber(false));
    const number = readNumber(true);
    assert.ok(number >= latest);
    latest = number;
  }
  assert.ok(latest > 0, "nothing was published");
  const target = folderTarget(folder, "a folder");
  await target.open();
  await target.put(documentSetAt(latest + 1));
  assert.equal(readNumber(true), latest + 1);
  assert.deepEqual(readdirSync(folder).toSorted(), [".jwksd", ".well-known", "jwks"]);
  const kept = readdirSync(join(folder, ".jwksd"));
  assert.equal(
    kept.some((name) => name.startsWith("draft")),
    false,
    "the killed processes' temporary files are removed",
  );
  await target.close();
});

test("a bucket is consistent after kill -9 at any moment", async (t) => {
  const stub = await s3Stub();
  t.after(() => stub.close());
  const read: Read = (path) => stub.objects.get(path)?.body.toString();
  const hasShortCache = ({ isShort }: { readonly isShort: boolean }): boolean =>
    !isShort || stub.objects.get("jwks")?.cacheControl === "public, max-age=300, must-revalidate";
  let latest = -1;
  for (let round = 0; round < (isSoak ? 15 : 1); round += 1) {
    const publisher = await startPublisher(t, stub.url, latest + 1);
    await readAndKill(publisher, 20 + Math.random() * 50, () => checkPair(read, hasShortCache));
    latest = Math.max(latest, checkPair(read, hasShortCache));
  }
  assert.ok(latest > 0, "nothing was published");
  assert.deepEqual(stub.refused, []);
});
