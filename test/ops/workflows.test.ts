import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { complaints, workflow } from "../support/workflows.ts";

const root = resolve(import.meta.dirname, "../..");
const read = (path: string): Promise<string> => readFile(join(root, path), "utf8");
const folder = ".github/workflows";
const release = `${folder}/release.yml`;
const peers = `${folder}/peers.yml`;
for (const file of await readdir(join(root, folder))) {
  const name = `${folder}/${file}`;
  const { text, permissions, steps } = await workflow(name);
  test(`${name} is valid, with explicit permissions and pinned actions`, async () => {
    assert.deepEqual(await complaints(name, text), []);
    assert.deepEqual(permissions, {});
    for (const { uses } of steps) if (uses !== undefined) assert.match(uses, /^[\w-]+\/[\w/-]+@[0-9a-f]{40}$/);
    assert.doesNotMatch(text, /NPM_TOKEN|NODE_AUTH_TOKEN/);
  });
}

const { text, jobs, steps } = await workflow(release);
const commands = steps.map(({ run = "" }) => run).join("\n");

describe(release, () => {
  test("defines every output that it uses, and a misspelling in it is rejected", async () => {
    for (const [right, wrong] of [
      ["timeout-minutes", "timeoutminutes"],
      ["attestations: write", "atestations: write"],
      ["${{ steps.", "${{ stepz."],
    ] as const) {
      assert.equal((await complaints(release, text.replace(right, wrong))).length, 1, wrong);
    }
    const ids = new Set(steps.map(({ id }) => id));
    for (const [, id] of text.matchAll(/\$\{\{ steps\.([\w-]+)\./g)) assert.ok(ids.has(id), id);
  });

  test("publishes only if there is a tag, and never from the job that runs the project's code", () => {
    assert.deepEqual(jobs["build"]?.permissions, { contents: "read" });
    const publishing = /\battest@|gh release|buildah login|npm publish/;
    for (const { name, uses = "", run = "", if: condition = "" } of steps.filter(
      ({ uses = "", run = "" }) => publishing.test(uses) || publishing.test(run),
    )) {
      const isDryRun = run.includes('if [ "$IS_RELEASE" = true ]') && run.includes("--dry-run");
      assert.ok(isDryRun || condition === "env.IS_RELEASE == 'true'", name ?? uses);
    }
    for (const [name, { steps }] of Object.entries(jobs))
      if (name !== "build") assert.ok(!steps.some(({ uses = "" }) => uses.startsWith("actions/checkout@")), name);
  });

  test("runs only existing scripts", () => {
    for (const [, script = ""] of commands.matchAll(/npm run ([\w:-]+)/g))
      assert.ok(Object.hasOwn(packageJson.scripts, script), script);
    for (const [file] of commands.matchAll(/\b(?:scripts|test)\/[\w/.-]+/g))
      assert.ok(existsSync(join(root, file)), file);
  });

  test("accepts only a tag that matches the package's version", async () => {
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

  test("builds only with commands that CI runs too", async () => {
    // CI also runs all tests; the image's test builds it.
    const ci = `${await read(".ci/run")}${await read("test/ops/image.test.ts")}`.replaceAll("npm run -s ", "npm run ");
    for (const { run = "" } of jobs["build"]?.steps ?? [])
      for (const [command] of run.matchAll(/npm run [\w:-]+|scripts\/[\w-]+/g))
        assert.ok(ci.includes(command), command);
    assert.match(ci, /^step .*; npm test$/m);
  });
});

describe(peers, async () => {
  const { on, steps } = await workflow(peers);
  const runOf = (step: string): string => steps.find(({ name }) => name === step)?.run ?? "";

  test("runs once a week", () => assert.match(on.schedule?.[0]?.cron ?? "", /^\d+ \d+ \* \* [0-6]$/));

  test("installs the latest releases of the packages that the tests use", () => {
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

  test("tests the adapters and runs the endpoint tests against them", async () => {
    const command = runOf("Test what uses them").replace(/\S+\/node --test.*/, "echo");
    const { stdout } = await promisify(execFile)("bash", ["-ec", command], { cwd: root });
    const files = stdout.split(/\s+/);
    for (const file of ["adapters/oidc-provider", "docs/samples", "spec/wire"])
      assert.ok(files.includes(`test/${file}.test.ts`), file);
  });
});
