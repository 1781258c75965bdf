import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./page.ts";

test("docs/doctor.md has a paragraph about every code (node test/doctor/page.ts writes it)", () => {
  const { is, shouldBe } = page();
  assert.equal(is, shouldBe);
  assert.equal(new Set(is.match(/^### \w+$/gm)).size, is.match(/^### \w+$/gm)?.length);
});
