import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { readJsonObject } from "../../src/service/config/json-file.ts";
import { refusal } from "../support/refusal.ts";
import { temporaryFolder } from "../support/service.ts";

describe("a file that is not JSON is refused with line and column, and without a word of it", () => {
  const rows: readonly (readonly [name: string, text: string, place: string])[] = [
    ["cut off", '{\n  "secret": 80', ": look at line 2, column 15"],
    ["cut off after a comma", '{"a": [1,', ": it ends too early"],
    ["empty", "", ": it ends too early"],
    ["a comma too many", '{\n  "secret": 80,\n}', ": look at line 3, column 1"],
    ["a comma too few", '{\n  "port": 80\n  "secret": 1}', ": look at line 3, column 3"],
    ["a value without quotes", '{"a": 1,\n "issuer": secret}', ""],
    ["a name without quotes", '{"a": 1,\n secret: 1}', ": look at line 2, column 2"],
    ["a comment", '{"a": 1, // secret\n "b": 2}', ": look at line 1, column 10"],
    ["single quotes", "{'secret': 1}", ": look at line 1, column 2"],
    ["a text that is not closed", '{"a": "secret\n}', ": look at line 1, column 14"],
    ["something after the end", '{"a": 1}\r\nsecret', ": look at line 2, column 1"],
    ["YAML", "secret: 1\n", ""],
    ["a text that looks like a place", "x (line 91 column 82)", ""],
    ["a number with a leading zero", '{"port": 0080}', ": look at line 1, column 11"],
  ];
  for (const [name, text, place] of rows) {
    test(name, async (t) => {
      const file = join(await temporaryFolder(t), "jwksd.json");
      await writeFile(file, text);
      const error = await refusal(() => readJsonObject(file, "the configuration file"), "ERR_CONFIG_FORMAT");
      assert.equal(error.message, `the configuration file ${file} is not JSON${place}`);
      assert.equal(error.cause, undefined);
    });
  }
});
