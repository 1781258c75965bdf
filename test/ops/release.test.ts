import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import packageJson from "../../package.json" with { type: "json" };
import { complaints } from "../support/workflows.ts";

interface Step {
  readonly name?: string;
  readonly id?: string;
  readonly uses?: string;
  readonly run?: string;
}

interface Workflow {
  readonly permissions: object;
  readonly jobs: Readonly<Record<string, { readonly permissions: object; readonly steps: readonly Step[] }>>;
}

const root = resolve(import.meta.dirname, "../..");
const read = (path: string): Promise<string> => readFile(join(root, path), "utf8");
const name = ".github/workflows/release.yml";
const text = await read(name);
const { permissions, jobs } = parse(text) as Workflow;
const steps = Object.values(jobs).flatMap((job) => job.steps);
const commands = steps.map(({ run = "" }) => run).join("\n");

describe(name, () => {
  test("is what the forge takes", async () => {
    assert.deepEqual(await complaints(name, text), []);
    for (const [right, wrong] of [
      ["timeout-minutes", "timeoutminutes"],
      ["attestations: write", "atestations: write"],
      ["${{ steps.", "${{ stepz."],
    ] as const) {
      assert.equal((await complaints(name, text.replace(right, wrong))).length, 1, wrong);
    }
    const ids = new Set(steps.map(({ id }) => id));
    for (const [, id] of text.matchAll(/\$\{\{ steps\.([\w-]+)\./g)) assert.ok(ids.has(id), id);
  });

  test("has rights that are named, and actions of one version", () => {
    assert.deepEqual(permissions, {});
    for (const { uses } of steps) if (uses !== undefined) assert.match(uses, /^actions\/[\w-]+@v\d+\.\d+\.\d+$/);
  });

  test("runs what is there, and releases all that is made", async () => {
    for (const [, script = ""] of commands.matchAll(/npm run ([\w:-]+)/g))
      assert.ok(Object.hasOwn(packageJson.scripts, script), script);
    for (const [file] of commands.matchAll(/\b(?:scripts|test)\/[\w/.-]+/g))
      assert.ok(existsSync(join(root, file)), file);
    const sums = /^sha256sum "\$archive" (.*) > (SHA256SUMS)$/m.exec(await read("scripts/build-archive")) ?? [];
    const made = ["jwksd-linux-x64.tar.gz", ...(sums[1]?.split(" ") ?? []), sums[2] ?? ""];
    const released = Array.from(commands.matchAll(/dist\/archive\/([\w.-]+)/g), ([, file = ""]) => file);
    assert.deepEqual(released.toSorted(), made.toSorted());
  });

  test("takes a tag that is the version of the package, and no other", async () => {
    const run = steps.find(({ name }) => name === "The tag is the version of the package")?.run ?? "";
    const exitOf = async (tag: string): Promise<unknown> => {
      const env = { ...process.env, GITHUB_REF_NAME: tag };
      return promisify(execFile)("bash", ["-ec", run], { cwd: root, env }).then(
        () => 0,
        ({ code }: { readonly code: unknown }) => code,
      );
    };
    assert.deepEqual([await exitOf(`v${packageJson.version}`), await exitOf("v0.0.0")], [0, 1]);
  });

  test("runs nothing that was not run before, but for what needs the forge", async () => {
    const needForge = new Set([
      "Publish the image",
      "Publish the package with its provenance",
      "Publish the files",
      // Run above.
      "The tag is the version of the package",
    ]);
    // CI runs all tests, too; that of the image builds it.
    const ci = `${await read(".ci/run")}${await read("test/ops/image.test.ts")}`.replaceAll("npm run -s ", "npm run ");
    const known = [...needForge, "Install", "Build the archive", "Test the archive", "Build the image"];
    const named = steps.flatMap(({ name, run }) => (run === undefined ? [] : [name ?? run]));
    assert.deepEqual(named.toSorted(), known.toSorted());
    for (const { name = "", run = "" } of steps) {
      if (needForge.has(name)) continue;
      for (const [command] of run.matchAll(/npm run [\w:-]+|scripts\/[\w-]+/g))
        assert.ok(ci.includes(command), command);
    }
    assert.match(ci, /^step .*; npm test$/m);
  });
});
