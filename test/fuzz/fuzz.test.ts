import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, readdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { build } from "esbuild";
import { skipped } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import * as targets from "./targets.ts";

const run = promisify(execFile);
const here = import.meta.dirname;
const seconds = 60;

/** A newer C library than the system's, which scripts/install-test-services puts here if the system's is too old for Jazzer.js. */
const newerLibrary = "/opt/jwksd-fuzzing/usr/lib/x86_64-linux-gnu";

/** Returns the command that runs the fuzzer, or why there is none. */
function fuzzer(): readonly [string, ...string[]] | string {
  const jazzer = createRequire(import.meta.url)
    .resolve("@jazzer.js/core")
    .replace(/[^/]*$/, "cli.js");
  const { header } = process.report.getReport() as { readonly header: { readonly glibcVersionRuntime?: string } };
  if (Number(header.glibcVersionRuntime?.split(".")[1]) >= 38) return [process.execPath, jazzer];
  if (!existsSync(newerLibrary))
    return "Jazzer.js needs glibc 2.38; install it with: sudo scripts/install-test-services";
  return [join(newerLibrary, "ld-linux-x86-64.so.2"), "--library-path", newerLibrary, process.execPath, jazzer];
}

describe("no seed or earlier finding violates the property of", () => {
  for (const [name, target] of Object.entries(targets))
    test(name, async () => {
      const files = await readdir(join(here, "seeds", name));
      assert.ok(files.length > 0);
      for (const file of files) await target(await readFile(join(here, "seeds", name, file)));
    });
});

test("docs/releases.md lists the targets", async () => {
  const page = await readFile(join(here, "../../docs/releases.md"), "utf8");
  const [, table = ""] = page.split("\n## Fuzzing\n");
  const names = Array.from(table.matchAll(/^\| `(\w+)` \|/gm), ([, name = ""]) => name);
  assert.deepEqual(names, Object.keys(targets).toSorted());
});

const command = fuzzer();
const isAvailable = typeof command !== "string" || process.env["CI"] !== undefined;

if (isSoak)
  describe(
    "a minute of coverage-guided fuzzing does not violate the property of",
    { skip: !isAvailable && skipped(command), concurrency: 2 },
    () => {
      for (const name of Object.keys(targets))
        test(name, async (t) => {
          assert.ok(typeof command !== "string", String(command));
          const folder = await temporaryFolder(t);
          const bundle = join(folder, "targets.mjs");
          const [entryPoints, found] = [[join(here, "targets.ts")], join(folder, "found")];
          await mkdir(found);
          await build({
            entryPoints,
            outfile: bundle,
            bundle: true,
            format: "esm",
            platform: "node",
            conditions: ["node"],
          });
          const [program, ...before] = command;
          const options = ["-f", name, "-i", "targets.mjs", "--timeout=20000", found, join(here, "seeds", name)];
          const limits = ["--", `-max_total_time=${seconds}`, "-max_len=16384", "-print_final_stats=1"];
          // A finding is in the error's output, as bytes in base64.
          const { stderr } = await run(program, [...before, bundle, ...options, ...limits], { cwd: folder });
          const [last = ""] = /^#\d+\tDONE.*$/m.exec(stderr) ?? [];
          const [, executions = 0, coverage = 0] = /^#(\d+)\tDONE +cov: (\d+)/.exec(last) ?? [];
          assert.ok(Number(executions) > 0, stderr);
          t.diagnostic(`${name}: ${executions} executions, ${coverage} branches, no finding`);
        });
    },
  );
