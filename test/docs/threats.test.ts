import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";

const root = resolve(import.meta.dirname, "../..");

/** Returns the rows of a page's tables as cells, without the headings. */
function rowsOf(text: string): string[][] {
  const rows = [...text.matchAll(/^\| (.*) \|$/gm)].map(([, row = ""]) => row.split(" | "));
  return rows.filter(([, , last]) => last !== "test");
}

const page = await readFile(join(root, "docs/threats.md"), "utf8");

test("docs/threats.md takes about five minutes to read: at most 1,350 words, not counting the diagram and the test names", () => {
  const read = page
    .replace(/```[^]*?```/, "")
    .replaceAll(/ \| `[\w/.-]+`: .* \|$/gm, "")
    .replaceAll(/\]\(.*?\)/g, "]");
  const words = read.split(/\s+/).filter((word) => /\w/.test(word)).length;
  assert.ok(words <= 1_350, `${words} words`);
});

test("each row of docs/threats.md names a test that exists", async () => {
  const rows = rowsOf(page);
  const missing: string[] = [];
  for (const [, , cell = ""] of rows) {
    const [, file = "", title = ""] = /^`([\w/.-]+\.test\.ts)`: (.+)$/.exec(cell) ?? [];
    const code = await readFile(join(root, "test", file), "utf8").catch(() => "");
    const titles = [...code.matchAll(/\b(?:test|describe)\(\s*["`](.*)["`],/g)].map(([, found = ""]) => found);
    if (title === "" || !titles.some((found) => found.endsWith(title))) missing.push(cell);
  }
  assert.deepEqual(missing, []);
  assert.ok(rows.length > 0);
});
