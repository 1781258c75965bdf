import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, copyFile, mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, describe, test } from "node:test";
import { eventually, temporaryFolder } from "../support/service.ts";

const root = resolve(import.meta.dirname, "../..");

/** A stand-in for npm: it changes node_modules like npm, follows environment variables, and records each installation. */
const npm = `#!/bin/sh
case "$1" in
  ci | install)
    echo "$1" >> installed
    [ "$1" = install ] || rm -rf node_modules
    mkdir -p node_modules/.bin
    case "$*" in *node-*@24.0.0*) ln -sf "$NEW_NODE" node_modules/.bin/node ;; esac
    while [ -e slow ]; do sleep 0.02; done
    [ ! -e interrupted ] || exit 1 ;;
  test)
    [ -z "\${LITTER:-}" ] || touch "$LITTER"
    echo "# pass 1" ;;
esac
`;
const nodeOf = (knowsTypescript: boolean): string => `#!/bin/sh
[ "$1" != --test ] || exec printf '%s\\n' "$@"
[ "$1" = -p ] || exit ${knowsTypescript ? 0 : 1}
exec '${process.execPath}' "$@"
`;

async function write(path: string, content: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content, { mode: 0o755 });
}

/** Creates a clone with the tested scripts and the stand-ins for npm and Node. */
async function clone(t: TestContext, { node = "new" }: { readonly node?: "new" | "old" } = {}) {
  const folder = join(await temporaryFolder(t), "clone");
  const programs = join(dirname(folder), "bin");
  await write(join(programs, "npm"), npm);
  await write(join(programs, "node"), nodeOf(node === "new"));
  await write(join(programs, "newer"), nodeOf(true));
  await write(join(folder, "package-lock.json"), '{ "packages": { "node_modules/node": { "version": "24.0.0" } } }');
  await write(join(folder, "scripts/install-test-services"), "#!/bin/sh\n");
  for (const file of ["scripts/setup", "scripts/test", ".ci/run", ".gitignore"]) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await copyFile(join(root, file), join(folder, file));
  }
  async function run(script: string, env: NodeJS.ProcessEnv = {}, ...args: readonly string[]) {
    const own = { PATH: `${programs}:${process.env["PATH"]}`, NEW_NODE: join(programs, "newer"), ...env };
    const child = spawn(join(folder, script), args, { env: own, stdio: ["ignore", "pipe", "pipe"] });
    const output = Promise.all([text(child.stdout), text(child.stderr)]);
    const [code] = (await once(child, "close")) as [number];
    const [stdout, stderr] = await output;
    return { code, stdout, stderr };
  }
  return {
    folder,
    run,
    setup: (...args: readonly string[]) => run("scripts/setup", {}, ...args),
    installed: async (): Promise<string> =>
      (await readFile(join(folder, "installed"), "utf8").catch(() => "")).trim().replaceAll("\n", " "),
  };
}

describe("scripts/setup", () => {
  const rows: readonly (readonly [name: string, runs: readonly string[], installed: string])[] = [
    ["the service needs few packages, installed once", ["service", "service"], "install"],
    ["the tests install the rest, which the service then has too", ["service", "all", "service", "all"], "install ci"],
    ["tests first", ["all", "service", "all"], "ci"],
  ];
  for (const [name, runs, installed] of rows) {
    for (const node of ["new", "old"] as const) {
      test(`${name}; with ${node === "new" ? "a recent Node" : "an old Node"}`, async (t) => {
        const { setup, ...cloned } = await clone(t, { node });
        const messages: string[] = [];
        for (const what of runs) messages.push((await setup(what)).stderr);
        assert.equal(await cloned.installed(), installed);
        assert.equal(messages.filter((message) => message !== "").length, installed.split(" ").length);
      });
    }
  }

  test("replaces a Node installation that is no longer recent enough", async (t) => {
    const { setup, installed, folder } = await clone(t);
    await setup("service");
    await writeFile(join(dirname(folder), "bin/node"), nodeOf(false));
    await setup("service");
    await setup("service");
    assert.equal(await installed(), "install install");
  });

  for (const what of ["service", "all"]) {
    test(`repeats an installation of ${what} if it was interrupted or the lock file has changed`, async (t) => {
      const { setup, installed, folder } = await clone(t);
      await writeFile(join(folder, "interrupted"), "");
      assert.equal((await setup(what)).code, 1);
      await rm(join(folder, "interrupted"));
      await setup(what);
      await appendFile(join(folder, "package-lock.json"), "\n");
      await setup(what);
      await setup(what);
      assert.equal((await installed()).split(" ").length, 3);
    });
  }

  test("a second installation waits for the lock, and a killed installation's lock does not block others", async (t) => {
    const { setup, installed, folder } = await clone(t);
    await writeFile(join(folder, "slow"), "");
    const gone = spawn("true");
    await once(gone, "exit");
    await symlink(String(gone.pid), join(folder, ".jwksd-setup.lock"));
    const first = setup("service");
    await eventually("the first installation has started", async () => (await installed()) === "install");
    const second = setup("service");
    await rm(join(folder, "slow"));
    assert.deepEqual([(await first).code, (await second).code, (await second).stderr], [0, 0, ""]);
    assert.equal(await installed(), "install");
  });

  test("leaves a linked node_modules folder alone", async (t) => {
    const { setup, installed, folder } = await clone(t, { node: "old" });
    await symlink(folder, join(folder, "node_modules"));
    await setup("service");
    await setup("all");
    assert.equal(await installed(), "");
  });
});

test("scripts/test runs all tests, unless test files are given", async (t) => {
  const { run, folder } = await clone(t);
  await symlink(folder, join(folder, "node_modules"));
  const file = "test/cli/help.test.ts";
  for (const args of [[], ["--test-only"], ["--test-name-pattern", "a b"], [file], ["--test-only", file, file]]) {
    const { stdout } = await run("scripts/test", {}, ...args);
    const nodeArgs = stdout.trim().split("\n");
    const given = nodeArgs.slice(nodeArgs.indexOf("--import") + 2);
    const every = args.includes(file) ? [] : [given.at(-1)];
    assert.deepEqual(given, [...args, ...every]);
    for (const pattern of every) assert.match(pattern ?? "", /^test\/\{all,.*\}\/\*\.test\.ts$/);
  }
});

/** Creates a clone with everything committed. */
async function repository(t: TestContext) {
  const cloned = await clone(t);
  const git = async (...args: string[]): Promise<void> => {
    const child = spawn("git", ["-c", "user.name=a", "-c", "user.email=a@b", ...args], { cwd: cloned.folder });
    assert.deepEqual(await once(child, "exit"), [0, null]);
  };
  await appendFile(join(cloned.folder, ".gitignore"), "installed\n");
  await git("init", "--quiet");
  await git("add", "--all");
  await git("commit", "--quiet", "--message=all");
  return cloned;
}

describe(".ci/run", () => {
  test("ends with the test summary", async (t) => {
    const { run } = await repository(t);
    const { code, stdout } = await run(".ci/run");
    assert.deepEqual([code, stdout.split("\n").slice(-3)], [0, ["== tests, including examples", "# pass 1", ""]]);
  });

  test("fails, naming each file, if a step or a test leaves files behind", async (t) => {
    const { run, folder } = await repository(t);
    for (const tests of [true, false]) {
      if (!tests) await writeFile(join(folder, "jwks"), "");
      const { code, stdout, stderr } = await run(".ci/run", tests ? { LITTER: "jwks" } : {});
      assert.equal(code, 1);
      assert.match(stderr, /the work tree is not clean:\n\?\? jwks\n$/);
      assert.equal(stdout.includes("# pass 1"), tests);
      await rm(join(folder, "jwks"));
    }
  });
});
