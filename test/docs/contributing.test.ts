import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, posix, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { modules } from "../../modules.ts";
import packageJson from "../../package.json" with { type: "json" };
import { flagName, settingNames } from "../../src/service/config/setting-definitions.ts";

const root = resolve(import.meta.dirname, "../..");

/** Programs, their output folders, and names from TypeScript and packages. */
const programs = new Set(["tsc", "bun", "import", "try", "kill", "node", "node:test", "jwt", "dist", "dist/cli"]);

const matches = (text: string, pattern: RegExp): string[] => [...text.matchAll(pattern)].map(([, name = ""]) => name);

test("CONTRIBUTING.md lists each module, either in the layers or in the table", async () => {
  const markdown = await readFile(join(root, "CONTRIBUTING.md"), "utf8");
  const lines = markdown.split("\n").filter((line) => /^\| .* \|$|^[a-z]+ {4,}/.test(line));
  const described = new Set(lines.flatMap((line) => line.match(/^[a-z]+|(?<=`)[\w/-]+(?=`)/g) ?? []));
  const missing = Object.keys(modules).filter((name) => !described.has(name) && !described.has(posix.basename(name)));
  assert.deepEqual(missing, []);
});

test("each name in backticks in CONTRIBUTING.md is exported or occurs in a file named in the same section", async () => {
  const files = new Map<string, string>();
  const { stdout } = await promisify(execFile)("git", ["ls-files", "-z"], { cwd: root });
  for (const path of stdout.split("\0").filter((path) => existsSync(join(root, path)))) {
    const text = /\.ts$|^scripts\/\w+$/.test(path) ? await readFile(join(root, path), "utf8") : "";
    files.set(path, text.replaceAll(/\/\*\*.*?\*\/|^ *\/\/[^\n]*$/gms, ""));
  }
  const code = [...files.values()].join("\n");
  const known = new Set([
    ...programs,
    ...Object.keys(modules),
    ...[...files.keys()].flatMap((path) => path.split("/")),
    ...matches(code, /^export (?:async )?(?:class|const|function|interface|type) (\w+)/gm),
    ...matches(code, /\b(JWKSD_[A-Z_]+)/g),
    ...matches(code, /(?<!\w)(--[a-z-]+)/g),
    ...settingNames.map(flagName),
    ...Object.keys(packageJson.imports),
    ...Object.keys(packageJson.exports).map((path) => path.replace(".", "jwksd")),
    ...Object.keys({ ...packageJson.devDependencies, ...packageJson.peerDependencies }),
    ...Object.keys(packageJson.scripts).map((name) => `npm run ${name}`),
    ...Object.keys(packageJson),
  ]);

  const unknown: string[] = [];
  const markdown = (await readFile(join(root, "CONTRIBUTING.md"), "utf8")).replaceAll(/^```.*?^```$/gms, "");
  for (const section of markdown.split(/^(?=- |\| |## )/m)) {
    const spans = matches(section, /`([^`]+)`/g).map((span) => span.replaceAll(/\s+/g, " "));
    const named = new Set(spans.flatMap((span) => files.get(span)?.match(/[\w$]+/g) ?? []));
    for (const span of spans) {
      // A path, a command, or a name with the code that follows it.
      const [name = ""] = /^npm run [\w:]+|(?<=^node )\S+|^[^\s({=]+/.exec(span) ?? [];
      const path = name.replace(/\/$/, "");
      const isPath = [...files.keys()].some((file) => file === path || file.startsWith(`${path}/`));
      if (!isPath && !named.has(name) && !known.has(path)) unknown.push(span);
    }
  }
  assert.deepEqual(unknown, []);
});
