import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, readdir } from "node:fs/promises";
import { join, normalize, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { errorTable } from "../../src/base/error-table.ts";
import { recipe } from "../../src/rotation/custody/key-wrapping.ts";
import { allMetrics } from "../support/all-metrics.ts";
import { brokenLinks, linksOf, pagesIn } from "../support/links.ts";
import { tableOf } from "./metrics.ts";

// test/package checks the links in the package and in the archive.

const root = resolve(import.meta.dirname, "../..");

const pages = await pagesIn(root);

test("links point to existing files and headings", async () => {
  assert.deepEqual(await brokenLinks(root), []);
});

test("links to other sites use https", () => {
  const wrong: string[] = [];
  for (const [file, text] of pages) {
    for (const link of linksOf(text).filter((link) => URL.canParse(link))) {
      const { protocol, hostname, username } = new URL(link);
      if (protocol !== "https:" || !/\.[a-z]+$/.test(hostname) || username !== "") wrong.push(`${file}: ${link}`);
    }
  }
  assert.deepEqual(wrong, []);
});

test("docs/README.md lists every page", () => {
  const listed = new Set(linksOf(pages.get("docs/README.md") ?? "").map((link) => normalize(join("docs", link))));
  const missing = [...pages.keys()].filter((file) => !listed.has(file) && !/^(?:docs\/)?README\.md$/.test(file));
  assert.deepEqual(missing, []);
});

test("a quick start does not mention anything that only readers of the other quick starts need", () => {
  const others: Readonly<Record<string, RegExp>> = {
    provider: /createBearerGuard|guard|jwksd serve|socket/i,
    api: /wrapping|createProvider|createKeyManager|store|jwksd (?:serve|rotate|plan)/i,
    service: /createProvider|createBearerGuard|guard|import /i,
  };
  for (const [name, pattern] of Object.entries(others)) {
    const [text = ""] = pages.get(`docs/start-${name}.md`)?.split("\n## Next\n") ?? [];
    assert.doesNotMatch(text, pattern, name);
    assert.ok((pages.get("README.md") ?? "").includes(`(docs/start-${name}.md)`));
  }
});

const codes = [...new Set(Object.values(errorTable).flatMap(Object.keys))].sort();
const codesIn = (text: string): string[] => [...new Set(text.match(/\bERR_[A-Z0-9_]+/g) ?? [])].sort();
// Node's own error codes that the sources check for.
const foreign = new Set([
  "ERR_HTTP_REQUEST_TIMEOUT",
  "ERR_MODULE_NOT_FOUND",
  "ERR_OSSL",
  "ERR_SQLITE_ERROR",
  "ERR_SSL",
  "ERR_TLS",
  "ERR_TLS_CERT_ALTNAME_INVALID",
]);

/** Files that a script generates. */
const generatedBy: Readonly<Record<string, string>> = {
  "docs/errors.md": "scripts/error-codes.ts",
  "docs/options.md": "scripts/options.ts",
  "docs/rotation.svg": "scripts/rotation-picture.ts",
};

for (const [file, script] of Object.entries(generatedBy)) {
  test(`${file} is the output of ${script}`, async () => {
    const path = join(root, script);
    const { stdout } = await promisify(execFile)(process.execPath, [path], { cwd: root });
    assert.equal(await readFile(join(root, file), "utf8"), stdout, `node ${script} > ${file}`);
  });
}

test("docs/options.md lists every options type that an entry point exports", async () => {
  const script = await readFile(join(root, "scripts/options.ts"), "utf8");
  const entries = Object.values(packageJson.exports).flatMap((entry) =>
    typeof entry === "string" ? [] : [entry.types],
  );
  const missing = new Set<string>();
  for (const entry of entries) {
    const text = await readFile(join(root, entry.replace("./dist/", "src/").replace(".d.ts", ".ts")), "utf8");
    for (const [name] of text.matchAll(/\b[A-Z]\w+Options\b/g)) if (!script.includes(`"${name}"`)) missing.add(name);
  }
  // jwksd passes the first three to a store. TestTokenOptions has a member for each fault in docs/testing.md.
  // JwtPluginOptions is the result of jwtOptions.
  assert.deepEqual([...missing].toSorted(), [
    "CallOptions",
    "JwtPluginOptions",
    "ReadOptions",
    "TestTokenOptions",
    "WriteOptions",
  ]);
});

test("every listed error code is thrown somewhere, and every thrown code is listed", async () => {
  const files = (await readdir(join(root, "src"), { recursive: true })).filter((name) => name.endsWith(".ts"));
  const texts = await Promise.all(files.map((name) => readFile(join(root, "src", name), "utf8")));
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

test("all pages, files and messages use the same command to generate a wrapping key", async () => {
  const { stdout } = await promisify(execFile)("git", ["grep", "-hE", "openssl rand [^|]*32", "--", ".", ":!test"], {
    cwd: root,
  });
  const recipes = stdout.split("\n").filter((line) => line !== "" && !line.includes("openssl rand -hex"));
  assert.deepEqual(
    recipes.filter((line) => !line.replaceAll("\\|", "|").includes(recipe)),
    [],
  );
});

test("docs/metrics.md has the generated table", async () => {
  const page = await readFile(new URL("../../docs/metrics.md", import.meta.url), "utf8");
  const [, table] = /<!-- table: [^>]* -->\s+([^]*?)\s+<!-- end of table -->/.exec(page) ?? [];
  assert.equal(table, tableOf(await allMetrics()), "node test/docs/metrics.ts prints it");
});

test("counters, times and labels follow Prometheus' naming rules", async () => {
  for (const { name, type, values } of await allMetrics()) {
    assert.match(name, /^jwksd_[a-z]+(?:_[a-z]+)*$/);
    assert.equal(name.endsWith("_total"), type === "counter", name);
    assert.ok(!/_(?:ms|milliseconds|age|minutes)(?:_|$)/.test(name), name);
    for (const { labels } of values) for (const label of Object.keys(labels)) assert.match(label, /^[a-z_]+$/);
  }
});
