import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, posix, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { packages, modules } from "../../modules.ts";

const root = resolve(import.meta.dirname, "../..");

const moduleOf = (file: string): string => posix.dirname(file);

/** All files in folders of `src/`, as `folder/file.ts`, except a package's declarations, which cannot be imported by path. */
const files = (await readdir(join(root, "src"), { recursive: true }))
  .filter((name) => /\/[\w-]+\.ts$/.test(name))
  .sort();

/** Specifiers for groups that are not imported as a whole. */
const parts: Readonly<Record<string, string>> = {
  "node:": "node:fs",
  jose: "jose/key/import",
  "package.json": "../package.json",
};

/** Everything that a module's file could import: every file and every package. */
const targets = [
  // Files outside of modules have their own test.
  ...files.filter((file) => moduleOf(file) in modules).map((file) => ({ name: moduleOf(file), specifier: file })),
  ...packages.map((name) => ({ name, specifier: parts[name] ?? name })),
];

function specifierFrom(module: string, { name, specifier }: (typeof targets)[number]): string {
  if (packages.includes(name) && name !== "package.json") return specifier;
  const path = posix.relative(module, specifier);
  return path.startsWith(".") ? path : `./${path}`;
}

interface Diagnostic {
  readonly code: string;
  readonly filename: string;
  readonly labels: readonly { readonly span: { readonly line: number } }[];
}

describe("the linter enforces which modules may import each other", () => {
  let folder: string;
  const refused = new Map<string, Set<number>>();

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "jwksd-modules-"));
    for (const name of ["oxlint.config.ts", "modules.ts", "package.json"])
      await copyFile(join(root, name), join(folder, name));
    await symlink(join(root, "node_modules"), join(folder, "node_modules"));
    for (const module of Object.keys(modules)) {
      const file = join(folder, "src", module, "tries-all.ts");
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, targets.map((to) => `export * from "${specifierFrom(module, to)}";\n`).join(""));
    }
    const oxlint = join(root, "node_modules/.bin/oxlint");
    const { stdout } = await promisify(execFile)(oxlint, ["--format", "json", "src"], {
      cwd: folder,
      maxBuffer: 2 ** 28,
    }).catch((error: { stdout: string }) => error);
    for (const { code, filename, labels } of (JSON.parse(stdout) as { diagnostics: Diagnostic[] }).diagnostics) {
      if (!code.includes("no-restricted-imports")) continue;
      const lines = refused.get(filename) ?? new Set();
      refused.set(filename, lines.add(labels[0]?.span.line ?? 0));
    }
  });
  after(() => rm(folder, { recursive: true }));

  for (const [module, { modules: mayImport, packages: mayUse }] of Object.entries(modules)) {
    test(module, () => {
      const allowed = new Set([module, "base", ...mayImport, ...mayUse]);
      const lines = refused.get(`src/${module}/tries-all.ts`) ?? new Set();
      assert.deepEqual(
        targets.filter((_, index) => lines.has(index + 1)),
        // jose as a whole is refused everywhere, so only a part of it is tried.
        targets.filter(({ name }) => !allowed.has(name)),
      );
    });
  }

  test("every folder in src/ is in the list, and the only files directly in src/ are index.ts and package.json", async () => {
    assert.deepEqual([...new Set(files.map(moduleOf))].sort(), Object.keys(modules).sort());
    const entries = await readdir(join(root, "src"), { withFileTypes: true });
    const ownFiles = entries.filter((entry) => entry.isFile()).map(({ name }) => name);
    assert.deepEqual(ownFiles.sort(), ["index.ts", "package.json"]);
  });

  test("no folder in src/ has more than 20 files", () => {
    const counts = Object.entries(Object.groupBy(files, moduleOf)).map(
      ([module, all]) => [module, all?.length ?? 0] as const,
    );
    assert.deepEqual(
      counts.filter(([, count]) => count > 20),
      [],
    );
  });

  test("no module imports more than eight others", () => {
    const many = Object.entries(modules).filter(([, module]) => module.modules.length > 8);
    assert.deepEqual(
      many.map(([name]) => name),
      [],
    );
  });

  test("in CONTRIBUTING.md's diagram, a layer builds only on layers on its own line and the lines below", async () => {
    const [, picture = ""] =
      /^```text\n(cli.*?)^```$/ms.exec(await readFile(join(root, "CONTRIBUTING.md"), "utf8")) ?? [];
    const lines = picture.trim().split("\n");
    const level = (module: string): number => lines.findIndex((line) => line.split(/ +/)[0] === module.split("/")[0]);
    for (const [from, { modules: below }] of Object.entries(modules)) {
      assert.ok(level(from) >= 0, from);
      for (const module of below) assert.ok(level(module) >= level(from), `${from}, ${module}`);
    }
  });
});

test("npm test runs each folder in test/ once", async () => {
  const [, apart = ""] = /^apart=(.*)$/m.exec(await readFile(join(root, "scripts/test"), "utf8")) ?? [];
  const runs = ["all", ...apart.split(",")];
  for (const name of await readdir(join(root, "test/all"))) {
    const [, folders = ""] = /loadTests\((.*)\)/.exec(await readFile(join(root, "test/all", name), "utf8")) ?? [];
    runs.push(...(JSON.parse(`[${folders}]`) as string[]));
  }
  const files = (await readdir(join(root, "test"), { recursive: true })).filter((name) => name.endsWith(".test.ts"));
  assert.deepEqual(runs.sort(), [...new Set(files.map(dirname))].sort());
});
