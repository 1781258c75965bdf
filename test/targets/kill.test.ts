// Publishers that are killed at any instant, and readers who read all the time.

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

/** What a reader finds of one document; `undefined` where it is not there yet. */
type Read = (path: string) => string | undefined;

/** @returns the number of the set; -1 before the first */
function checkPair(read: Read, isShortShown: (set: { readonly isShort: boolean }) => boolean): number {
  // As relying parties do: the discovery document first.
  const discovery = read(".well-known/openid-configuration");
  const text = read("jwks");
  if (text === undefined) {
    assert.equal(discovery, undefined, "it leads to a set that is not there");
    return -1;
  }
  const set = JSON.parse(text) as { number: number; isShort: boolean };
  assert.equal(text, Buffer.from(documentSetAt(set.number).documents[0]?.body ?? []).toString());
  assert.ok(isShortShown(set), `set ${set.number} is shown with the long Cache-Control`);
  if (discovery !== undefined) {
    assert.partialDeepStrictEqual(JSON.parse(discovery), { issuer: site.issuer, jwks_uri: `${site.issuer}/jwks` });
  }
  return set.number;
}

async function begin(t: TestContext, where: string, number: number): Promise<ChildProcess> {
  const process = fork(child, [where, String(number)], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  t.after(() => void process.kill("SIGKILL"));
  await once(process, "message");
  return process;
}

/** Reads for a while, and kills. */
async function readAndKill(process: ChildProcess, forMs: number, look: () => number): Promise<void> {
  const end = performance.now() + forMs;
  // The first one has to come to something.
  for (let newest = -1; performance.now() < end || newest < 1;) {
    const number = look();
    assert.ok(number >= newest, `set ${newest} was replaced by set ${number}`);
    newest = number;
    await turn();
  }
  process.kill("SIGKILL");
  await once(process, "exit");
}

test("a folder is whole at any instant, and after kill -9 at any instant", async (t) => {
  const folder = await temporaryFolder(t);
  const marker = join(folder, ".jwksd/rotation");
  const read: Read = (path) => {
    const file = join(folder, path);
    return existsSync(file) ? readFileSync(file, "utf8") : undefined;
  };
  // The marker and the set are two files, so only where both stand still is one looked at after the other.
  const look = (isStill: boolean): number =>
    checkPair(read, ({ isShort }) => !isStill || !isShort || existsSync(marker));
  let newest = -1;
  for (let round = 0; round < (isSoak ? 30 : 1); round += 1) {
    const publisher = await begin(t, folder, newest + 1);
    await readAndKill(publisher, Math.random() * 25, () => look(false));
    const number = look(true);
    assert.ok(number >= newest);
    newest = number;
  }
  assert.ok(newest > 0, "nothing was published");
  const target = folderTarget(folder, "a folder");
  await target.open();
  await target.put(documentSetAt(newest + 1));
  assert.equal(look(true), newest + 1);
  assert.deepEqual(readdirSync(folder).toSorted(), [".jwksd", ".well-known", "jwks"]);
  const kept = readdirSync(join(folder, ".jwksd"));
  assert.equal(
    kept.some((name) => name.startsWith("draft")),
    false,
    "drafts of the killed are gone",
  );
  await target.close();
});

test("a bucket is whole after kill -9 at any instant", async (t) => {
  const stub = await s3Stub();
  t.after(() => stub.close());
  const read: Read = (path) => stub.objects.get(path)?.body.toString();
  const isShortShown = ({ isShort }: { readonly isShort: boolean }): boolean =>
    !isShort || stub.objects.get("jwks")?.cacheControl === "public, max-age=300, must-revalidate";
  let newest = -1;
  for (let round = 0; round < (isSoak ? 15 : 1); round += 1) {
    const publisher = await begin(t, stub.url, newest + 1);
    await readAndKill(publisher, 20 + Math.random() * 50, () => checkPair(read, isShortShown));
    newest = Math.max(newest, checkPair(read, isShortShown));
  }
  assert.ok(newest > 0, "nothing was published");
  assert.deepEqual(stub.refused, []);
});
