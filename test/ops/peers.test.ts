import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import packageJson from "../../package.json" with { type: "json" };
import { complaints } from "../support/workflows.ts";

const root = resolve(import.meta.dirname, "../..");
const name = ".github/workflows/peers.yml";
const text = await readFile(join(root, name), "utf8");
interface Workflow {
  readonly on: { readonly schedule: readonly { readonly cron: string }[] };
  readonly permissions: object;
  readonly jobs: { readonly newest: { readonly steps: readonly { name?: string; uses?: string; run?: string }[] } };
}
const { on, permissions, jobs } = parse(text) as Workflow;
const runOf = (step: string): string => jobs.newest.steps.find(({ name }) => name === step)?.run ?? "";

describe(name, () => {
  test("is what the forge takes, once a week, without rights, and with actions of one version", async () => {
    assert.deepEqual(await complaints(name, text), []);
    assert.match(on.schedule[0]?.cron ?? "", /^\d+ \d+ \* \* [0-6]$/);
    assert.deepEqual(permissions, {});
    for (const { uses } of jobs.newest.steps)
      if (uses !== undefined) assert.match(uses, /^actions\/[\w-]+@v\d+\.\d+\.\d+$/);
  });

  test("installs the newest of packages that the tests have", () => {
    const installed = Array.from(
      runOf("Install the newest releases").matchAll(/(\S+)@latest/g),
      ([, peer = ""]) => peer,
    );
    const expected = ["@better-auth/oauth-provider", "better-auth", "oidc-provider", "openid-client"];
    assert.deepEqual(installed.toSorted(), expected);
    assert.deepEqual(
      expected.filter((peer) => !Object.hasOwn(packageJson.devDependencies, peer)),
      [],
    );
  });

  test("tests the adapters, and the contract through them", async () => {
    const command = runOf("Test what uses them").replace(/\S+\/node --test.*/, "echo");
    const { stdout } = await promisify(execFile)("bash", ["-ec", command], { cwd: root });
    const files = stdout.split(/\s+/);
    for (const file of ["adapters/oidc-provider", "docs/samples", "spec/wire"])
      assert.ok(files.includes(`test/${file}.test.ts`), file);
  });
});
