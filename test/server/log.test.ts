import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createLog } from "../../src/service/config/log.ts";

// A new line, a clear screen, its one-character form, a change of direction, a line separator.
const odd = "a\n12:00:00 error b\u001b[2J\u009b2J\u202e\u2028";

function logged(json: boolean, fields: object, message: string): string {
  let text = "";
  const output = { write: (line: string) => (text += line) };
  createLog("info", json, { stdout: output, stderr: output }).info(fields, message);
  return text;
}

describe("the log for eyes: one line per event, and nothing that a terminal obeys", () => {
  const rows: readonly (readonly [name: string, fields: object, message: string, line: string])[] = [
    ["nothing odd", { kid: "2026-11", count: 2 }, "started", "info started kid=2026-11 count=2"],
    [
      "a kid",
      { kid: odd },
      "key added",
      String.raw`info key added kid="a\n12:00:00 error b\u001b[2J\u{9b}2J\u{202e}\u{2028}"`,
    ],
    ["kids", { kids: ["\u009b", "b"] }, "started", String.raw`info started kids=["\u{9b}","b"]`],
    [
      "a path in a message",
      {},
      `cannot read ${odd}`,
      String.raw`info cannot read a\u{a}12:00:00 error b\u{1b}[2J\u{9b}2J\u{202e}\u{2028}`,
    ],
    ["a value that looks like fields", { kid: "a code=b" }, "x", 'info x kid="a code=b"'],
    ["letters of other alphabets", { kid: "schlüssel", path: "/鍵" }, "x", "info x kid=schlüssel path=/鍵"],
  ];
  for (const [name, fields, message, line] of rows) {
    test(name, () => {
      const [, rest] = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC (.*)$/s.exec(logged(false, fields, message)) ?? [];
      assert.equal(rest, `${line}\n`);
    });
  }
});

test("the log of JSON lines: the same, and what is parsed is what it was", () => {
  const text = logged(true, { kids: [odd] }, odd);
  assert.match(text, /^[ -~]+\n$/);
  const { kids, msg } = JSON.parse(text) as { kids: string[]; msg: string };
  assert.deepEqual({ kids, msg }, { kids: [odd], msg: odd });
});
