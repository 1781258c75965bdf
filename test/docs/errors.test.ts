import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";
import { errorCodes } from "../../src/errors.ts";

const root = new URL("../../", import.meta.url);
const codesIn = (text: string): string[] => [...new Set(text.match(/\bERR_[A-Z0-9_]+/g) ?? [])].sort();
// Codes of Node's own that the sources look at.
const foreign = new Set(["ERR_HTTP_REQUEST_TIMEOUT", "ERR_MODULE_NOT_FOUND", "ERR_SQLITE_ERROR"]);

test("docs/errors.md lists every code, and no other", async () => {
  const documented = codesIn(await readFile(new URL("docs/errors.md", root), "utf8"));
  assert.deepEqual(documented, Object.keys(errorCodes).sort());
});

test("every code is raised somewhere, and every raised code is listed", async () => {
  const files = (await readdir(new URL("src/", root), { recursive: true })).filter((name) => name.endsWith(".ts"));
  const texts = await Promise.all(files.map((name) => readFile(new URL(`src/${name}`, root), "utf8")));
  const raised = codesIn(
    texts
      .join("\n")
      .replace(/^ \*.*$/gm, "")
      .replace(/^ {2}"?ERR_\w+"?[:,].*$/gm, ""),
  );
  assert.deepEqual(
    raised.filter((code) => !foreign.has(code)),
    Object.keys(errorCodes).sort(),
  );
});
