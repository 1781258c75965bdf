import assert from "node:assert/strict";
import { glob, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { modules } from "../../modules.ts";
import { flagName, settingNames } from "../../src/service/config/setting-definitions.ts";
import packageJson from "../../package.json" with { type: "json" };

const root = resolve(import.meta.dirname, "../..");

/** Programs, folders that they write, and words of TypeScript and of packages. */
const programs = new Set(["tsc", "bun", "import", "try", "kill", "node", "node:test", "jwt", "dist", "dist/cli"]);

const matches = (text: string, pattern: RegExp): string[] => [...text.matchAll(pattern)].map(([, name = ""]) => name);

test("each name in backticks in CONTRIBUTING.md is in a file that its section names, or is exported", async () => {
  const files = new Map<string, string>();
  const patterns = ["{src,scripts,test,lab,examples,docs,ops}/**", "*", ".ci/*"];
  for await (const entry of glob(patterns, { cwd: root, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || path.includes("node_modules")) continue;
    const text = /\.(?:ts|test)$|scripts\/\w+$/.test(path) ? await readFile(path, "utf8") : "";
    files.set(path.slice(root.length + 1), text.replaceAll(/\/\*\*.*?\*\/|^ *\/\/[^\n]*$/gms, ""));
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
      // A path, a command, or a name with what follows it in code.
      const [name = ""] = /^npm run [\w:]+|(?<=^node )\S+|^[^\s({=]+/.exec(span) ?? [];
      const path = name.replace(/\/$/, "");
      const isPath = [...files.keys()].some((file) => file === path || file.startsWith(`${path}/`));
      if (!isPath && !named.has(name) && !known.has(path)) unknown.push(span);
    }
  }
  assert.deepEqual(unknown, []);
});
