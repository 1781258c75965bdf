import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { durationText, relativeText, timeText } from "../../src/base/format.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

describe("a duration in words is the nearest one of two units", () => {
  const rows: readonly [ms: number, text: string][] = [
    [0, "0 s"],
    [499, "0 s"],
    [second, "1 s"],
    [59.4 * second, "59 s"],
    [minute, "1 min"],
    [minute + second, "1 min 1 s"],
    [hour - second, "59 min 59 s"],
    [hour - 1, "1 h"],
    [hour + minute + 29 * second, "1 h 1 min"],
    [day - 20 * second, "1 d"],
    [90 * day, "90 d"],
    [90 * day - 5 * second, "90 d"],
    [90 * day + 5 * second, "90 d"],
    [90 * day - 31 * minute, "89 d 23 h"],
    [-2 * hour, "2 h"],
  ];
  for (const [ms, text] of rows) test(`${ms} ms: ${text}`, () => assert.equal(durationText(ms), text));

  test("also as seen from now", () => {
    const now = Date.parse("2026-11-22T12:00:00Z");
    assert.equal(relativeText(now + 90 * day - 3 * second, now), "in 90 d");
    assert.equal(relativeText(now - hour, now), "1 h ago");
    assert.equal(relativeText(now + 400, now), "now");
  });
});

test("a moment in words is in UTC with its date, and is the beginning of what JSON has", () => {
  const rows: readonly [ms: number, text: string][] = [
    [Date.parse("2026-11-22T12:00:00.000Z"), "2026-11-22 12:00:00 UTC"],
    [Date.parse("2026-11-22T12:00:00.999Z"), "2026-11-22 12:00:00 UTC"],
    [Date.parse("2026-12-31T23:59:59.001Z"), "2026-12-31 23:59:59 UTC"],
    [Infinity, "never"],
  ];
  for (const [ms, text] of rows) assert.equal(timeText(ms), text);
});
