import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { errorTable } from "../../src/base/error-table.ts";
import { recipe } from "../../src/rotation/custody/wrapping.ts";

const codes = [...new Set(Object.values(errorTable).flatMap(Object.keys))].sort();
const root = new URL("../../", import.meta.url);
const codesIn = (text: string): string[] => [...new Set(text.match(/\bERR_[A-Z0-9_]+/g) ?? [])].sort();
// Codes of Node's own that the sources look at.
const foreign = new Set([
  "ERR_HTTP_REQUEST_TIMEOUT",
  "ERR_MODULE_NOT_FOUND",
  "ERR_OSSL",
  "ERR_SQLITE_ERROR",
  "ERR_SSL",
  "ERR_TLS",
  "ERR_TLS_CERT_ALTNAME_INVALID",
]);

/** The files that a script makes. */
const made: Readonly<Record<string, string>> = {
  "docs/errors.md": "scripts/error-codes.ts",
  "docs/options.md": "scripts/options.ts",
  "docs/rotation.svg": "scripts/rotation-picture.ts",
};

for (const [file, script] of Object.entries(made)) {
  test(`${file} is what ${script} makes`, async () => {
    const path = fileURLToPath(new URL(script, root));
    const { stdout } = await promisify(execFile)(process.execPath, [path], { cwd: root });
    assert.equal(await readFile(new URL(file, root), "utf8"), stdout, `node ${script} > ${file}`);
  });
}

test("docs/options.md has every type of options that an entry point exports", async () => {
  const script = await readFile(new URL("scripts/options.ts", root), "utf8");
  const entries = Object.values(packageJson.exports).flatMap((entry) =>
    typeof entry === "string" ? [] : [entry.types],
  );
  const missing: string[] = [];
  for (const entry of entries) {
    const text = await readFile(new URL(entry.replace("./dist/", "src/").replace(".d.ts", ".ts"), root), "utf8");
    for (const [name] of text.matchAll(/\b[A-Z]\w+Options\b/g)) if (!script.includes(`"${name}"`)) missing.push(name);
  }
  // What jwksd gives to a store.
  assert.deepEqual(missing, ["ReadOptions", "WriteOptions"]);
});

test("every code is raised somewhere, and every raised code is listed", async () => {
  const files = (await readdir(new URL("src/", root), { recursive: true })).filter((name) => name.endsWith(".ts"));
  const texts = await Promise.all(files.map((name) => readFile(new URL(`src/${name}`, root), "utf8")));
  const raised = codesIn(
    texts
      .join("\n")
      .replace(/^ \*.*$/gm, "")
      .replace(/^ {2,4}ERR_\w+: (\{[^]*?\}|true),$/gm, ""),
  );
  assert.deepEqual(
    raised.filter((code) => !foreign.has(code)),
    codes,
  );
});

test("one recipe makes wrapping keys, in all pages, files and messages", async () => {
  const { stdout } = await promisify(execFile)("git", ["grep", "-hE", "openssl rand [^|]*32", "--", ".", ":!test"], {
    cwd: fileURLToPath(root),
  });
  const recipes = stdout.split("\n").filter((line) => line !== "" && !line.includes("openssl rand -hex"));
  assert.deepEqual(
    recipes.filter((line) => !line.replaceAll("\\|", "|").includes(recipe)),
    [],
  );
});
