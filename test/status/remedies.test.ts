import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { shellWord } from "../../src/service/admin/remedies.ts";

test("a shell takes a word as it is, whatever is in it", () => {
  const texts = [
    "plain-1",
    "-rf",
    "a b",
    "it's",
    "$(touch x)",
    "`id`",
    "a;b|c&d>e",
    '"',
    "\\",
    "~",
    "a\nb",
    "käse",
    "*",
    "!!",
  ];
  const printed = execFileSync("sh", ["-c", `printf '%s\\0' ${texts.map(shellWord).join(" ")}`], { encoding: "utf8" });
  assert.deepEqual(printed.split("\0").slice(0, -1), texts);
  assert.deepEqual(["plain-1", "pkcs11:a=b"].map(shellWord), ["plain-1", "pkcs11:a=b"]);
});
