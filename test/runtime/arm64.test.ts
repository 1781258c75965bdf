import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import lockFile from "../../package-lock.json" with { type: "json" };
import { part, skipWithout, skipped } from "../support/parts.ts";
import { isSoak } from "../support/soak.ts";

// The suites that depend on the machine: cryptography, the file of a SQLite store, bytes on the wire.

const root = resolve(import.meta.dirname, "../..");
const node = join("/opt/jwksd-arm64", lockFile.packages["node_modules/node"].version, "bin/node");
const isMissing = !existsSync(node) && !process.env["CI"];
const skip =
  skipWithout("qemu-aarch64-static") ||
  (isMissing && skipped(`${node} not installed; install it with: sudo scripts/install-test-services`));

/** QEMU runs one process, so a test that starts another one is left out. */
const startsProcesses = "checkRegister detects|over two handles";

async function run(...args: string[]): Promise<string> {
  const all = ["-L", "/usr/aarch64-linux-gnu", node, ...args];
  // Otherwise it would report to this test's runner.
  const { NODE_TEST_CONTEXT: _runner, ...env } = process.env;
  const { stdout } = await promisify(execFile)(part("qemu-aarch64-static"), all, {
    cwd: root,
    env,
    maxBuffer: 2 ** 26,
  });
  return stdout;
}

if (isSoak)
  describe("on arm64, under QEMU", { skip, concurrency: 2 }, () => {
    test("the command line starts", async () => {
      assert.match(await run("src/cli/main.ts", "--version"), /linux-arm64\)$/m);
    });

    for (const file of ["contract/signer.local", "contract/store.local", "spec/sections", "spec/wire"])
      test(`test/${file}.test.ts passes`, async (t) => {
        const output = await run(
          "--test-reporter=spec",
          `--test-skip-pattern=${startsProcesses}`,
          `test/${file}.test.ts`,
        );
        const [, passed = "0"] = /^ℹ pass (\d+)$/m.exec(output) ?? [];
        assert.match(output, /^ℹ fail 0$/m, output.slice(-2_000));
        assert.ok(Number(passed) > 0, output);
        t.diagnostic(`${passed} tests passed`);
      });
  });
