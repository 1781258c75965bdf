import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { errorTable } from "../../src/base/error-table.ts";

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

test("docs/errors.md is what the table makes of it", async () => {
  const script = fileURLToPath(new URL("scripts/error-codes.ts", root));
  const { stdout } = await promisify(execFile)(process.execPath, [script]);
  assert.equal(
    await readFile(new URL("docs/errors.md", root), "utf8"),
    stdout,
    "node scripts/error-codes.ts > docs/errors.md",
  );
});

test("docs/rotation.svg is what the plan draws", async () => {
  const script = fileURLToPath(new URL("scripts/rotation-picture.ts", root));
  const { stdout } = await promisify(execFile)(process.execPath, [script]);
  const picture = await readFile(new URL("docs/rotation.svg", root), "utf8");
  assert.equal(picture, stdout, "node scripts/rotation-picture.ts > docs/rotation.svg");
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
