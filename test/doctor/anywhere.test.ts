import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

test("jwksd/doctor imports nothing of Node, and no package but jose", async () => {
  const seen = new Set<string>();
  const packages = new Set<string>();
  const visit = async (file: URL): Promise<void> => {
    if (seen.has(file.href)) return;
    seen.add(file.href);
    const text = await readFile(file, "utf8");
    for (const [, name = ""] of text.matchAll(/^(?:import|export) [^;]*?from "([^"]+)";/gm)) {
      if (name.startsWith(".")) await visit(new URL(name, file));
      else packages.add(name);
    }
    assert.doesNotMatch(text, /\b(Buffer|process|require)\b[.(]/, file.href);
  };
  await visit(new URL("../../src/doctor/index.ts", import.meta.url));
  assert.ok(seen.size > 15, `${seen.size} files`);
  assert.deepEqual([...packages], ["jose"]);
});
