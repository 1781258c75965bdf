import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { describe, test } from "node:test";
import { accepted } from "../../scripts/prose-patterns.ts";
import { findingsIn } from "../../scripts/prose.ts";

const root = resolve(import.meta.dirname, "../..");
const phrasesIn = (text: string, file = "docs/page.md"): string[] =>
  findingsIn(file, text).map(({ line, phrase }) => `${line}: ${phrase}`);

describe("the prose check", () => {
  test("reports each phrase with its line and what to write instead", () => {
    const [first, ...others] = findingsIn("docs/page.md", "It is fine.\nThe kid is that of the JWK, for ever.");
    assert.deepEqual([first?.file, first?.line, first?.phrase], ["docs/page.md", 2, "that of"]);
    assert.match(first?.advice ?? "", /possessive/);
    assert.deepEqual(
      others.map(({ phrase }) => phrase),
      ["for ever"],
    );
  });

  test(`accepts "whether" for a boolean property, but not for a function`, () => {
    const doc = "  /** Whether the key signs. */\n";
    assert.deepEqual(phrasesIn(`${doc}  readonly signs: boolean;`), []);
    assert.deepEqual(phrasesIn(`${doc}  function signs(): boolean {`), ["1: /** Whether the key signs. */"]);
  });

  test("accepts only existing lines that contain a phrase it would report", async () => {
    for (const { file, text } of accepted) {
      const lines = (await readFile(resolve(root, file), "utf8")).split("\n").filter((line) => line.includes(text));
      assert.ok(lines.length > 0, `${file} no longer contains: ${text}`);
      assert.ok(
        lines.some((line) => phrasesIn(line).length > 0),
        `${file} needs no entry for: ${text}`,
      );
    }
  });
});
