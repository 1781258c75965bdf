import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { builtClone } from "../support/build.ts";
import { skipped } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";

// The programs in docs/testing.md in each runner, with the built package.

const root = resolve(import.meta.dirname, "../..");
const modules = join(root, "node_modules");
const programOf = (file: string): Promise<string> => readFile(join(root, file), "utf8");

interface Runner {
  /** Module that the first line imports from. */
  readonly from: string;
  /** An additional name to import, and the code that sets the clock forward by six minutes. */
  readonly later: readonly [name: string, code: string];
  readonly command: readonly [string, ...string[]];
  /** Whether the runner also runs the program in CommonJS. */
  readonly require?: true;
}

const mockLater = 'mock.timers.enable({ apis: ["Date"], now: Date.now() }); mock.timers.tick(360_000);';
const runners: Readonly<Record<string, Runner>> = {
  node: {
    from: "node:test",
    later: ["mock", mockLater],
    command: ["node", "--test", "orders.test.mjs", "orders.test.cjs"],
    require: true,
  },
  vitest: {
    from: "vitest",
    later: ["vi", "vi.useFakeTimers(); vi.advanceTimersByTime(360_000);"],
    command: ["vitest", "run", "--root", "."],
  },
  jest: {
    from: "@jest/globals",
    later: [
      "jest",
      'jest.useFakeTimers({ doNotFake: ["nextTick", "queueMicrotask"] }); jest.advanceTimersByTime(360_000);',
    ],
    command: ["jest", "--rootDir", "."],
    require: true,
  },
  bun: {
    from: "bun:test",
    later: ["setSystemTime", "setSystemTime(new Date(Date.now() + 360_000));"],
    command: ["bun", "test"],
  },
  deno: {
    from: "node:test",
    later: ["mock", mockLater],
    command: ["deno", "test", "--no-prompt", "--no-check", "--allow-env", "--allow-read"],
  },
};

describe("the programs in docs/testing.md", () => {
  for (const [name, { from, later, command, require }] of Object.entries(runners).slice(0, soak(5, 1))) {
    // A checkout may have outdated packages.
    const skip = existsSync(join(modules, ".bin", name)) ? false : skipped(`${name} is not installed; npm ci does it`);
    test(`run in ${name}${require ? ", including CommonJS" : ""}`, { skip }, async (t) => {
      const folder = await temporaryFolder(t);
      await mkdir(join(folder, "node_modules"));
      await symlink(await builtClone(), join(folder, "node_modules/jwksd"));
      for (const name of ["vitest", "@jest"])
        await symlink(join(modules, name), join(folder, "node_modules", name)).catch(() => {});
      const first = `import { test, ${later[0]} } from "${from}";`;
      const program = (await programOf("examples/docs/orders-test.mjs")).replace(
        'import { test } from "node:test";',
        first,
      );
      assert.ok(program.includes(first));
      const more = `\ntest("six minutes later, a token has expired", async () => {
        const token = await issuer.token({ scope: "orders:read" });
        ${later[1]}
        assert.equal((await ask(token)).status, 401);
      });`;
      await writeFile(join(folder, "orders.test.mjs"), program + more);
      if (require) {
        const line = from === "node:test" ? "before, test" : "beforeAll: before, test";
        const text = (await programOf("examples/docs/orders-test.cjs")).replace(
          /^const \{ before, test \} = .*$/m,
          `const { ${line} } = require("${from}");`,
        );
        await writeFile(join(folder, "orders.test.cjs"), text);
      }
      await writeFile(join(folder, "orders.mjs"), await programOf("examples/docs/orders.mjs"));
      await writeFile(join(folder, "package.json"), "{}");
      const PATH = [join(modules, ".bin"), process.env["PATH"]].join(delimiter);
      const { NODE_TEST_CONTEXT: _, FORCE_COLOR: __, ...env } = process.env;
      const options = { cwd: folder, env: { ...env, PATH, NO_COLOR: "1", NODE_OPTIONS: "--experimental-vm-modules" } };
      const { stdout, stderr } = await promisify(execFile)(command[0], command.slice(1), options);
      const output = stdout + stderr;
      assert.match(output, require ? /\b5 passed|pass 5\b/ : /\b4 (?:\S+m)?pass(?:ed)?\b/, output);
    });
  }
});
