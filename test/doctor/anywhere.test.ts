import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { promisify } from "node:util";
import { examine } from "../../src/doctor/index.ts";
import { binary } from "../support/bundle.ts";
import { weak } from "./fixtures.ts";
import { at, bytes, published, sound } from "./observed.ts";

test("jwksd/doctor imports nothing of Node, and no package but jose", async () => {
  const seen = new Set<string>();
  const packages = new Set<string>();
  const visit = async (file: URL): Promise<void> => {
    if (seen.has(file.href)) return;
    seen.add(file.href);
    const text = await readFile(file, "utf8");
    for (const [, name = ""] of text.matchAll(/^(?:import|export) [^;]*?from "([^"]+)";/gm)) {
      if (name.startsWith(".")) await visit(new URL(name, file));
      // What it is on every runtime that has no implementation of its own.
      else if (name === "#crypto") await visit(new URL("../../src/keys/crypto/web.ts", import.meta.url));
      // Of jose, the parts that it uses.
      else packages.add(name.replace(/^jose\/.*/, "jose"));
    }
    assert.doesNotMatch(text, /\b(Buffer|process|require)\b[.(]/, file.href);
  };
  await visit(new URL("../../src/doctor/index.ts", import.meta.url));
  assert.ok(seen.size > 15, `${seen.size} files`);
  assert.deepEqual([...packages], ["jose"]);
});

for (const [runtime, ...args] of [["bun"], ["deno", "run", "--no-prompt", "--allow-read"]] as const) {
  test(`${runtime} finds what Node finds`, async () => {
    const rsa = Object.entries(weak).map(([kid, key]) => published(kid, key, "RS256"));
    const body = bytes({ keys: [sound, { ...sound, kid: "off", y: sound["x"] }, ...rsa] });
    const expected = (await examine({ at, set: { body } })).map(({ code, seen }) => [code, seen]);
    const script = new URL("anywhere-run.ts", import.meta.url).pathname;
    const input = JSON.stringify({ at, body: Buffer.from(body).toString() });
    const { stdout } = await promisify(execFile)(binary(runtime), [...args, script, input]);
    assert.deepEqual(JSON.parse(stdout), expected);
    assert.ok(expected.length >= 6);
  });
}
