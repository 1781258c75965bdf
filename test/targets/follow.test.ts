import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Interface, createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { settingsFrom } from "../../src/cli/setting-flags.ts";
import { createLog } from "../../src/service/config/logger.ts";
import type { Published } from "../../src/service/targets/publish.ts";
import { startPublishing } from "../../src/service/targets/publish.ts";
import { serveFolder } from "../support/folder-server.ts";
import { named } from "../support/keys.ts";
import { eventually, runCli, spawnCli, temporaryFolder } from "../support/service.ts";

interface PublishedLine {
  readonly kids: readonly string[];
  readonly mode: string;
  readonly written: readonly string[];
}

const options = { timeout: 60_000 };

async function start(t: TestContext) {
  const [folder, data] = [await temporaryFolder(t), await temporaryFolder(t)];
  const server = await serveFolder(t, folder);
  const common = ["--issuer", server.url];
  const follow = (...args: readonly string[]) => {
    const running = spawnCli(t, ["publish", folder, ...common, "--follow", "--json", ...args]);
    return { ...running, lines: linesOf(createInterface({ input: running.child.stdout })) };
  };
  return { folder, data, server, common, follow };
}

/** Yields each line of standard output, parsed. */
async function* linesOf(lines: Interface): AsyncGenerator<PublishedLine, never> {
  for await (const line of lines) yield JSON.parse(line) as PublishedLine;
  throw new Error("standard output has ended");
}

test(
  "a publisher with --follow picks up a rotation; after SIGTERM, it exits, but its target stays registered",
  options,
  async (t) => {
    const { folder, data, common, follow } = await start(t);
    const store = ["--data", data];
    const { child, exited, lines } = follow(...store);
    const { value: first } = await lines.next();
    assert.deepEqual([first.mode, first.kids.length], ["long", 1]);
    const rotated = await runCli(t, ["rotate", "--wait", "20", ...common, ...store]);
    assert.equal(rotated.code, 0, "the publisher has caught up");
    const { value: second } = await lines.next();
    assert.partialDeepStrictEqual(second, { mode: "rotation", written: [".jwksd/rotation", "jwks"] });
    assert.equal(second.kids.length, 2);
    await eventually("the waiting period has begun", async () => {
      const { stdout } = await runCli(t, ["replicas", "--json", ...common, ...store]);
      const { replicas, waits } = JSON.parse(stdout) as { replicas: unknown[]; waits: unknown[] };
      return replicas.length === 1 && waits.length === 0;
    });
    child.kill("SIGTERM");
    assert.deepEqual(await exited, { code: 0, signal: null });

    const listed = JSON.parse((await runCli(t, ["replicas", "--json", ...common, ...store])).stdout) as object;
    assert.partialDeepStrictEqual(listed, { replicas: [], targets: [{ isBehind: false }] });
    const { stdout } = await runCli(t, ["publish", folder, ...common, ...store, "--json"]);
    assert.partialDeepStrictEqual(JSON.parse(stdout), { written: [], kids: second.kids });
  },
);

test("a publisher reads changed key files again and waits for a server that is down", options, async (t) => {
  const { folder, data, server } = await start(t);
  const [keys, purges] = [join(data, "keys.json"), join(data, "purges")];
  const write = (...kids: readonly string[]) =>
    writeFile(keys, JSON.stringify({ keys: kids.map((kid) => named(kid)) }), { mode: 0o600 });
  await write("one");
  server.instead = { status: 503 };
  const published: Published[] = [];
  const failures: string[] = [];
  const settings = await settingsFrom({ environment: {} }, { issuer: server.url, keys });
  const publishing = await startPublishing(
    settings,
    {
      target: folder,
      purgeCommand: `echo >> ${purges}`,
      environment: {},
      onPublished: (now) => void published.push(now),
      onFailure: (error) => void failures.push((error as { readonly code: string }).code),
    },
    createLog({ logLevel: "silent", jsonLogs: true }),
  );
  t.after(() => publishing.stop());
  assert.deepEqual(failures, ["ERR_NOT_SERVED"]);
  assert.deepEqual([publishing.isDone, published.length], [false, 0]);
  server.instead = undefined;
  await publishing.reload();
  assert.deepEqual([publishing.isDone, published.length], [true, 1]);
  await publishing.reload();
  assert.equal(published.length, 1, "nothing has changed");
  assert.equal(await readFile(purges, "utf8"), "\n", "one write causes one purge, however often it is read back");
  await write("two", "one");
  await eventually("the new file is published", () => published.length === 2);
  assert.deepEqual(published[1]?.written, ["jwks"]);
  await writeFile(keys, "{");
  await eventually("the invalid file is refused", () => failures.length === 2);
  assert.match(await readFile(join(folder, "jwks"), "utf8"), /"two".*"one"/);
});

/** Returns a command that ignores SIGTERM, as do its child processes. */
const hangs = (pidFile: string): string => `trap '' TERM; sleep 30 & echo $! > ${pidFile}; wait; sleep 30`;
/** Reports whether a process is running. An ended process may still be listed until its parent reads its exit code. */
const isRunning = (pid: number): boolean => {
  const { stdout } = spawnSync("ps", ["-o", "stat=", "-p", String(pid)], { encoding: "utf8" });
  return /^[^Z\s]/.test(stdout);
};
const pidIn = (file: string): Promise<number> => readFile(file, "utf8").then(Number, () => 0);

test("a hanging purge command is logged, and SIGTERM ends it and its child processes", options, async (t) => {
  const { data, follow } = await start(t);
  const pidFile = join(data, "pid");
  const { child, exited } = follow("--data", data, "--purge-command", hangs(pidFile));
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
  await eventually("the purge command runs", async () => (await pidIn(pidFile)) > 0);
  await eventually("the log has a line", () => /running the purge command for at most 60 s/.test(errors));
  const began = performance.now();
  child.kill("SIGTERM");
  assert.deepEqual(await exited, { code: 0, signal: null });
  assert.ok(performance.now() - began < 25_000, "before the command would end");
  assert.equal(isRunning(await pidIn(pidFile)), false);
  assert.doesNotMatch(errors, /ERR_PURGE/, "stopping is not a failure");
});

test("a purge command that hangs after a change also ends when the publisher stops", options, async (t) => {
  const { folder, data, server } = await start(t);
  const [keys, pidFile] = [join(data, "keys.json"), join(data, "pid")];
  const write = (kid: string) => writeFile(keys, JSON.stringify({ keys: [named(kid)] }), { mode: 0o600 });
  await write("one");
  const purgeCommand = `if [ -e ${data}/second ]; then ${hangs(pidFile)}; fi; touch ${data}/second`;
  const settings = await settingsFrom({ environment: {} }, { issuer: server.url, keys });
  const publishing = await startPublishing(
    settings,
    { target: folder, purgeCommand, environment: process.env, onPublished() {}, onFailure() {} },
    createLog({ logLevel: "silent", jsonLogs: true }),
  );
  assert.equal(publishing.isDone, true);
  await write("two");
  await eventually("the purge command runs", async () => (await pidIn(pidFile)) > 0);
  await publishing.stop();
  await eventually("the purge command has ended", async () => !isRunning(await pidIn(pidFile)));
});
