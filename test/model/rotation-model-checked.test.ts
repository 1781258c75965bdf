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

/**
 * Searches the model for a violation.
 *
 * @returns the violated assertion, or `undefined` if every state was visited without a violation
 */
async function search(...definitions: readonly string[]): Promise<string | undefined> {
  const cwd = await mkdtemp(join(tmpdir(), "jwksd-model-"));
  try {
    await run(part("spin"), [...definitions.map((definition) => `-D${definition}`), "-a", model], { cwd });
    // NOREDUCE: with one process, there is no order to reduce.
    await run(part("cc"), ["-O2", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=1900", "-o", "pan", "pan.c"], { cwd });
    const { stdout } = await run(join(cwd, "pan"), ["-m3000000", "-w22"], { cwd });
    const violated = /assertion violated (.*) \(at depth/.exec(stdout)?.[1];
    if (violated !== undefined) return violated;
    assert.match(stdout, /errors: 0\n/, stdout);
    assert.doesNotMatch(stdout, /Search not completed|max search depth too small|out of memory/, stdout);
    return undefined;
  } finally {
    await rm(cwd, { recursive: true });
  }
}

const [, list = ""] = /\/\* Changed models.*?\n(.*?)#define NOTHING/s.exec(text) ?? [];
const changes = [...list.matchAll(/^#define ([A-Z_]+) /gm)].map(([, name]) => `CHANGE=${name}`);
const waits = ["ANNOUNCE=CACHE", "ANNOUNCE=noted+CACHE-1", "RETIRE=TOKEN", "RETIRE=noted+TOKEN-1", "MODE_ON=CACHE"];

test("docs/model/README.md describes each change", () => {
  assert.ok(changes.length >= 11);
  for (const change of [...changes, ...waits]) assert.ok(readme.includes(`\`${change}\``), change);
});

// The model changes only when its own file changes, not with `src`.
if (isSoak)
  describe("the rotation model", { skip: skipWithout("spin", "cc"), concurrency: 2 }, () => {
    for (const size of [["PROCESSES=2"], ["PROCESSES=3", "OPERATOR=false"]]) {
      test(`has no violation in any state: ${size.join(" ")}`, async () =>
        assert.equal(await search(...size), undefined));
    }

    for (const change of [...changes, ...waits]) {
      test(`has a violation with the change ${change}`, async () => {
        assert.match((await search(change)) ?? "nothing violated", /tokenLeft|followed|isBehind|decommissioned/);
      });
    }

    const states = [...text.matchAll(/^#define (AN?_[A-Z_]+) /gm)].map(([, name = ""]) => name);
    assert.equal(states.length, 7);
    for (const state of states) {
      test(`reaches the relevant state ${state}`, async () => {
        assert.match((await search(`NEVER=${state}`)) ?? "nothing violated", /^ *!/);
      });
    }
  });
