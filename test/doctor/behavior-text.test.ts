import assert from "node:assert/strict";
import { test } from "node:test";
import { newKeyText, removedKeyText, replacedKeyText } from "../../src/doctor/verifiers/behavior-text.ts";
import { behaviors } from "../../src/doctor/verifiers/caching-behavior.ts";

/** Returns the time that a sentence gives for a verifier. */
function timeIn(name: string, sentence: string): string {
  const [, list = "", others = ""] = /: (.*?)\.(?: The others \((.*)\) do not\.)?$/.exec(sentence) ?? [];
  const has = (names: string): boolean => names.split(", ").includes(name);
  if (has(others)) return "not at all";
  const groups = list.split("; ").flatMap((group) => {
    const [, names = "", until = ""] = /^(.*?) ((?:for up to|until) .*)$/.exec(group) ?? [];
    return has(names) ? [until] : [];
  });
  assert.equal(groups.length, 1, `${name} is named once in: ${sentence}`);
  return groups[0] ?? "";
}

const units: Readonly<Record<string, number>> = { d: 86_400, h: 3_600, min: 60, s: 1 };

function secondsOf(time: string): number | null {
  if (time === "not at all") return 0;
  if (time === "until they are restarted") return null;
  return [...time.matchAll(/(\d+) (d|h|min|s)/g)].reduce(
    (sum, [, count, unit]) => sum + Number(count) * Number(units[unit ?? ""]),
    0,
  );
}

test("each sentence names each verifier once and gives its measured time", () => {
  for (const { name, refusesNewKey, trustsRemovedKey, trustsRevokedKey } of behaviors) {
    const refused = Object.values(refusesNewKey);
    const rows: readonly (readonly [sentence: string, seconds: number | null])[] = [
      [newKeyText(), refused.includes(null) ? null : Math.max(...refused.map(Number))],
      [replacedKeyText(), trustsRevokedKey],
      [removedKeyText(0), trustsRemovedKey[0]],
      [removedKeyText(1), trustsRemovedKey[300]],
      [removedKeyText(3_600), trustsRemovedKey[3600]],
      [removedKeyText(3_601), trustsRemovedKey[31536000]],
      [removedKeyText(1e9), trustsRemovedKey[31536000]],
    ];
    for (const [sentence, seconds] of rows) {
      const said = secondsOf(timeIn(name, sentence));
      // A duration is written in its two largest units.
      const isClose = said === seconds || (said !== null && seconds !== null && Math.abs(said - seconds) < said / 24);
      assert.ok(isClose, `${name}, ${String(seconds)} s: ${sentence}`);
    }
  }
});
