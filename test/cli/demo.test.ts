import assert from "node:assert/strict";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { Readable } from "node:stream";
import { describe, test } from "node:test";
import type { Io } from "../../src/cli/io.ts";
import { fastClock, startDemo, timesAsFast } from "../../src/cli/serve/demo.ts";
import { eventually, spawnCli, temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";

const timeout = 60_000;
const keyParameters = [{ name: "ECDSA", namedCurve: "P-256" }, false, ["sign"]] as const;

describe("a fast clock", () => {
  test("starts at the current time and, once told to hurry, speeds up both wall-clock and monotonic time", async () => {
    const real = simulatedClock();
    const clock = fastClock(60, real);
    const [start, monotonic] = [clock.now(), clock.monotonic?.() ?? 0];
    const passed = (): number[] => [clock.now() - start, (clock.monotonic?.() ?? 0) - monotonic];
    assert.equal(start, real.now());
    await real.advance(1500);
    assert.deepEqual(passed(), [1500, 1500], "before it hurries");
    clock.hurry();
    await real.advance(2000);
    assert.deepEqual(passed(), [121_500, 121_500]);
  });

  const timers: readonly [delayMs: number, realMs: number][] = [
    [3_600_000, 60_000],
    [60_000, 1000],
    [10_000, 1000],
    [300, 300],
    [0, 0],
  ];
  for (const [delayMs, realMs] of timers) {
    test(`fires a ${delayMs} ms timer after ${realMs} ms`, async () => {
      const real = simulatedClock();
      const start = real.now();
      let firedMs = -1;
      fastClock(60, real).setTimer(() => (firedMs = real.now() - start), delayMs);
      await real.advance(100_000);
      assert.equal(firedMs, realMs);
    });
  }
});

/** Starts a demonstration with the test's clock. */
function demo() {
  const real = simulatedClock();
  let log = "";
  const output = { write: (text: string) => (log += text) };
  const io: Io = { stdin: Readable.from([]), stdout: output, stderr: output, environment: {}, exitCode: 0 };
  return { real, log: () => log, starting: startDemo(io, fastClock(timesAsFast, real)) };
}

test("does not cause errors on a machine where startup is slow", { timeout }, async () => {
  const { real, log, ...running } = demo();
  const state = { isStarting: true };
  const starting = running.starting.finally(() => (state.isStarting = false));
  // Each turn of the event loop takes long, until 10 s have passed.
  for (let passedMs = 0; state.isStarting && passedMs < 10_000; passedMs += 20) await real.advance(20);
  await (await starting).stop();
  assert.match(log(), / info started /);
  assert.doesNotMatch(log(), / (warn|error) /);
});

test("completes a rotation within three minutes, under the same rules as any service", { timeout }, async () => {
  const { real, log, starting } = demo();
  const service = await starting;
  try {
    const seconds = async (count: number): Promise<void> => {
      for (let second = 0; second < count; second += 1) {
        await real.advance(1000);
        // A due step seals the store, and generating a key takes longer than sealing.
        for (let turn = 0; turn < 5; turn += 1) await crypto.subtle.generateKey(...keyParameters);
      }
    };
    // On a busy machine, a step takes longer than the clock allows and is retried.
    const within20s = async (what: string, isSo: () => boolean | Promise<boolean>): Promise<void> => {
      for (let second = 0; !(await isSo()); second += 1) {
        assert.ok(second < 20, what);
        await seconds(1);
      }
    };
    const count = (word: string): number => log().split(` info key ${word} `).length - 1;
    const kids = async (): Promise<string[]> => {
      const set = (await (await fetch(service.url)).json()) as { keys: { kid: string }[] };
      return set.keys.map(({ kid }) => kid);
    };
    const all = (): number[] => ["announced", "activated", "retired", "removed"].map(count);
    await eventually("the first key", () => count("activated") === 1);
    await seconds(58);
    const [first, ...others] = await kids();
    assert.deepEqual([all(), others], [[1, 1, 0, 0], []]);
    await seconds(4);
    await within20s("the next key is announced", async () => count("announced") === 2 && (await kids()).length === 2);
    await seconds(56);
    assert.deepEqual([all(), (await kids()).length], [[2, 1, 0, 0], 2]);
    await seconds(4);
    await within20s("the next key signs", () => count("activated") === 2 && count("retired") === 1);
    await seconds(20);
    assert.deepEqual([all(), (await kids()).length], [[2, 2, 1, 0], 2]);
    await seconds(38);
    await within20s("the old key is removed", () => count("removed") === 1);
    assert.ok(!(await kids()).includes(first ?? ""));
  } finally {
    await service.stop();
  }
});

describe("jwksd demo", { timeout }, () => {
  test("prints the URL of its page, listens only on this machine, ignores settings and leaves no files behind", async (t) => {
    const folder = await temporaryFolder(t);
    const env = { JWKSD_DATA: folder, JWKSD_HOST: "0.0.0.0", JWKSD_KEYS: "no/such/file", JWKSD_PORT: "1" };
    const { child, exited } = spawnCli(t, ["demo"], env);
    let stdout = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
    await eventually("it has started", () => stdout.includes("Press Ctrl-C to stop it."));
    assert.match(stdout, /^This is a demo, not for production/);
    // Relative to the time of printing, which may be a second later.
    const steps = [
      / (?:1:00|0:5\d) {2}a key is announced\n/,
      / (?:2:00|1:5\d) {2}a key is activated\n/,
      / 2:\d\d {2}a key is removed\n/,
    ];
    for (const step of steps) assert.match(stdout, step);
    const [, page = ""] = /^ {2}see {2}(http:\/\/127\.0\.0\.1:\d+)$/m.exec(stdout) ?? [];
    const [, set = ""] = /^ {2}try {2}curl -i (http:\/\/127\.0\.0\.1:\d+\/jwks)$/m.exec(stdout) ?? [];
    assert.match(await (await fetch(page)).text(), /jwksd demo, not for production/);
    assert.equal((await fetch(set)).status, 200);
    assert.deepEqual(await readdir(folder), []);
    child.kill("SIGINT");
    await once(child, "close");
    assert.deepEqual(await exited, { code: 0, signal: null });
  });
});
