import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { compare } from "./comparison.ts";

test("docs/comparison.md has the answers that the middlewares give", async (t) => {
  const page = await readFile(new URL("../../docs/comparison.md", import.meta.url), "utf8");
  const [, table] =
    /<!-- table: node test\/bearer\/comparison\.ts -->\n\n([^]*?)\n\n<!-- end of table -->/.exec(page) ?? [];
  assert.equal(table, await compare(t), "node test/bearer/comparison.ts prints it");
});
