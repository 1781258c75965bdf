import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { part, skipWithout } from "../support/parts.ts";
import { isSoak } from "../support/soak.ts";

const folder = new URL("../../docs/model/", import.meta.url);
const model = fileURLToPath(new URL("rotation.pml", folder));
const text = await readFile(model, "utf8");
const readme = await readFile(new URL("README.md", folder), "utf8");
const run = promisify(execFile);

// Two replicas take a second, and break the same rules.
const size = [isSoak ? "REPLICAS=3" : "REPLICAS=2", "LEASE=2"];
/** Each takes a second: all of them in the soak, the first ones elsewhere. */
const some = <T>(all: readonly T[], count: number): readonly T[] => (isSoak ? all : all.slice(0, count));

/** The names that the model defines between two of its lines. */
function names(from: string, to: string): string[] {
  const lines = text.slice(text.indexOf(from), text.indexOf(to));
  return [...lines.matchAll(/^#define ([A-Z_]+) /gm)].map(([, name = ""]) => name);
}

/**
 * Searches the model for a violation.
 *
 * @param all - Expects that there is none: a faster program and more memory, up to 1,900 MB, for the visit of every state
 * @returns the assertion that fails, or nothing if every state was visited and none fails
 */
async function search(definitions: readonly string[], all = false): Promise<string | undefined> {
  const cwd = await mkdtemp(join(tmpdir(), "jwksd-model-"));
  try {
    const defined = definitions.map((definition) => `-D${definition}`);
    await run(part("spin"), [...defined, "-a", model], { cwd });
    // NOREDUCE: one process leaves no order to reduce.
    // A slow program is made sooner, and it needs a second where the model is small.
    const flags = [all && isSoak ? "-O2" : "-O0", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=1900"];
    await run(part("cc"), [...flags, "-o", "pan", "pan.c"], { cwd });
    const { stdout } = await run(join(cwd, "pan"), all ? ["-m3000000", "-w24"] : ["-m500000", "-w18"], { cwd });
    const violated = /assertion violated (.*) \(at depth/.exec(stdout)?.[1];
    if (violated !== undefined) return violated;
    assert.match(stdout, /errors: 0\n/, stdout);
    assert.doesNotMatch(stdout, /Search not completed|max search depth too small|out of memory/, stdout);
    return undefined;
  } finally {
    await rm(cwd, { recursive: true });
  }
}

describe("the model of the barrier between replicas", { skip: skipWithout("spin", "cc"), concurrency: 2 }, () => {
  test("keeps both promises, and no step waits for a dead replica longer than its lease", async () => {
    assert.equal(await search(size, true), undefined);
  });

  const promises = /\btoken[AB]\b/;
  const changes = names("/* Changed models", "#define NOTHING");
  assert.ok(changes.length >= 19);
  test("docs/model/README.md says what each change does", () => {
    for (const change of changes) assert.ok(readme.includes(`\`${change}\``), change);
  });

  for (const change of some(changes, 2)) {
    test(`is found wrong if changed: ${change}`, async () => {
      assert.match((await search([...size, `CHANGE=${change}`])) ?? "nothing violated", promises);
    });
  }

  const waits = ["ANNOUNCE=CACHE-1", "RETIRE=LIFE", "RETIRE=LIFE+UNLEASED-1", "RETIRE=TOKEN+SKEW+UNLEASED"];
  for (const shorter of some(waits, 1)) {
    test(`is found wrong if a wait is too short: ${shorter}`, async () => {
      assert.match((await search([...size, shorter])) ?? "nothing violated", promises);
    });
  }

  const states = [
    "A_READY_REPLICA_LAGS_TO_THE_END",
    "A_ROTATION_ENDS",
    "A_REPLICA_IS_FENCED",
    "A_DEAD_REPLICA_DELAYS_A_STEP",
    "BOTH_KEYS_SIGN",
    "A_REPLICA_DRAINS",
  ];
  for (const state of some(states, 1)) {
    test(`meets the state that matters: ${state}`, async () => {
      const violated = await search([...size, `NEVER=${state}`]);
      assert.ok(violated !== undefined && !promises.test(violated), violated);
    });
  }
});
