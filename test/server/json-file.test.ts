import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { faultOf } from "../../src/service/config/json-fault.ts";
import { readJsonObject } from "../../src/service/config/json-file.ts";
import { refusal } from "../support/refusal.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";

test("a fault is found where, and only where, JSON.parse finds one", () => {
  const edit = fc.record({
    at: fc.nat(60),
    removed: fc.nat(2),
    inserted: fc.constantFrom(
      "",
      ",",
      '"',
      "}",
      "]",
      "{",
      ":",
      "0",
      "-",
      "e",
      "t",
      "\\",
      "\\u12",
      "\n",
      "\u0001",
      "\u00a0",
      "é",
    ),
  });
  fc.assert(
    fc.property(fc.json({ maxDepth: 3 }), fc.array(edit, { maxLength: 3 }), (json, edits) => {
      let text = json;
      for (const { at, removed, inserted } of edits) text = text.slice(0, at) + inserted + text.slice(at + removed);
      const fault = faultOf(text);
      assert.equal(fault === undefined, isJson(text), text);
      // No less of it is at fault already.
      if (fault !== undefined) assert.equal(faultOf(text.slice(0, fault)) ?? fault, fault);
    }),
    { numRuns: soak(2_000) },
  );
});

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

describe("a file that is not JSON is refused with line and column, and without a word of it", () => {
  const rows: readonly (readonly [name: string, text: string, line: number, column: number])[] = [
    ["cut off", '{\n  "secret": 80', 2, 15],
    ["empty", "", 1, 1],
    ["a comma too many", '{\n  "secret": 80,\n}', 3, 1],
    ["a comma too few", '{\n  "port": 80\n  "secret": 1}', 3, 3],
    ["a value without quotes", '{"a": 1,\n "issuer": secret}', 2, 12],
    ["a name without quotes", '{"a": 1,\n secret: 1}', 2, 2],
    ["a comment", '{"a": 1, // secret\n "b": 2}', 1, 10],
    ["single quotes", "{'secret': 1}", 1, 2],
    ["a text that is not closed", '{"a": "secret\n}', 1, 7],
    ["something after the end", '{"a": 1}\r\nsecret', 2, 1],
    ["YAML", "secret: 1\n", 1, 1],
    ["a number with a leading zero", '{"port": 0080}', 1, 11],
  ];
  for (const [name, text, line, column] of rows) {
    test(name, async (t) => {
      const file = join(await temporaryFolder(t), "jwksd.json");
      await writeFile(file, text);
      const error = await refusal(() => readJsonObject(file, "the configuration file"), "ERR_CONFIG_FORMAT");
      const place = `look at line ${line}, column ${column}`;
      assert.equal(error.message, `the configuration file ${file} is not JSON: ${place}`);
      assert.equal(error.cause, undefined);
    });
  }
});
