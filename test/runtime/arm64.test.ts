import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import lockFile from "../../package-lock.json" with { type: "json" };
import { part, skipWithout, skipped } from "../support/parts.ts";
import { cliDone, followService, temporaryFolder, withoutSettings } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";

// The suites that depend on the machine: cryptography, files, bytes on the wire, and the native part of pkcs11js, with a SoftHSM for arm64.

const root = resolve(import.meta.dirname, "../..");
const installed = "/opt/jwksd-arm64";
const nodeForArm = join(installed, lockFile.packages["node_modules/node"].version);
const packages = join(installed, "debian");
const absent = process.env["CI"] ? undefined : [nodeForArm, packages].find((path) => !existsSync(path));
const skip =
  skipWithout("qemu-aarch64-static", "aarch64-linux-gnu-g++") ||
  (absent !== undefined && skipped(`${absent} not installed; install it with: sudo scripts/install-test-services`));

const suites = [
  "contract/signer.local",
  "contract/signer.pkcs11",
  "contract/store.local",
  "spec/sections",
  "spec/wire",
  "store/sqlite",
];

/** Tests of Node's test runner, which starts processes for this machine, and tests with a TPM, whose module is for this machine. */
const left = "defineRegisterTests detects|TPM";

const run = promisify(execFile);
let folder = "";
/** Path of a program that runs Node for arm64. Its child processes run in the same way. */
let node = "";

/** QEMU looks for each file that a program opens in its root first: libraries, and what is native in packages. */
async function setUp(): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), "jwksd-arm64-"));
  // Some tests start a process as another user.
  await chmod(folder, 0o755);
  node = join(folder, "node");
  const libraries = join(folder, "root/usr/lib");
  const pkcs11js = await realpath(join(root, "node_modules/pkcs11js"));
  const release = join(folder, "root", pkcs11js, "build/Release");
  await mkdir(libraries, { recursive: true });
  await mkdir(release, { recursive: true });
  await symlink("/usr/aarch64-linux-gnu/lib", join(folder, "root/lib"));
  for (const name of ["softhsm", "aarch64-linux-gnu"])
    await symlink(join(packages, "usr/lib", name), join(libraries, name));
  const sources = ["dl", "common", "main"].map((name) => join(pkcs11js, "src", `${name}.cpp`));
  const options = ["-shared", "-fPIC", "-std=c++17", "-DNAPI_DISABLE_CPP_EXCEPTIONS", "-DNODE_GYP_MODULE_NAME=pkcs11"];
  const includes = [join(pkcs11js, "includes"), join(nodeForArm, "include/node")].map((path) => `-I${path}`);
  await run(part("aarch64-linux-gnu-g++"), [...options, ...includes, "-o", join(release, "pkcs11.node"), ...sources]);
  await symlink(part("aarch64-linux-gnu-gcc"), join(folder, "cc"));
  const preload = `data:text/javascript,process.execPath=${JSON.stringify(node)}`;
  const command = `${part("qemu-aarch64-static")} -L '${folder}/root' '${nodeForArm}/bin/node' --import '${preload}'`;
  await writeFile(node, `#!/bin/sh\nexec ${command} "$@"\n`, { mode: 0o755 });
}

/** Without variables that would make it report to this test's runner, or run repetitive tests in full. */
function environment(): NodeJS.ProcessEnv {
  const { NODE_TEST_CONTEXT: _runner, ...env } = withoutSettings(process.env);
  return { ...env, PATH: `${folder}${delimiter}${process.env["PATH"]}` };
}

if (isSoak)
  describe("on arm64, under QEMU", { skip, concurrency: 2 }, () => {
    before(setUp);
    after(() => rm(folder, { recursive: true, force: true }));

    test("a service starts, serves its key and stops, and its store, opened outside the emulator, still has the same key", async (t) => {
      const issuer = "https://op.example";
      const data = await temporaryFolder(t);
      const args = ["serve", "--port", "0", "--admin", "off", "--json-logs", "--issuer", issuer, "--data", data];
      const child = spawn(node, ["src/cli/main.ts", ...args], {
        cwd: root,
        env: environment(),
        stdio: ["ignore", "pipe", "pipe"],
      });
      t.after(() => child.kill("SIGKILL"));
      const exited = once(child, "exit").then(([code, signal]) => ({ code, signal }));
      const service = await followService({ child, exited });
      const { keys } = (await (await fetch(`http://127.0.0.1:${service.port}/jwks`)).json()) as {
        readonly keys: readonly { kid: string }[];
      };
      assert.equal(await service.stop(), 0);
      const { stdout } = await cliDone(t, ["keys", "--json", "--issuer", issuer, "--data", data]);
      const kept = JSON.parse(stdout) as { readonly keys: readonly { kid: string }[] };
      assert.deepEqual(
        kept.keys.map(({ kid }) => kid),
        keys.map(({ kid }) => kid),
      );
      assert.equal(keys.length, 1);
    });

    for (const file of suites)
      test(`test/${file}.test.ts passes`, async (t) => {
        const args = ["--test-reporter=spec", `--test-skip-pattern=${left}`, `test/${file}.test.ts`];
        const { stdout } = await run(node, args, { cwd: root, env: environment(), maxBuffer: 2 ** 26 });
        const [, passed = "0"] = /^ℹ pass (\d+)$/m.exec(stdout) ?? [];
        assert.match(stdout, /^ℹ fail 0$/m, stdout.slice(-2_000));
        assert.match(stdout, /^ℹ skipped 0$/m, stdout.slice(-2_000));
        assert.ok(Number(passed) > 0, stdout);
        t.diagnostic(`${passed} tests passed`);
      });
  });
