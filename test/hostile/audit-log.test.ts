// Without the wrapping key nothing is verified, and whoever can write the store can write any event into it.
import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { named } from "../support/keys.ts";
import { runCli, temporaryFolder } from "../support/service.ts";

const attack = "\u{1b}]52;c;Y3VybCBldmlsfHNo\u{7}\n9  2026-01-01 00:00:00 UTC  revoked sig forged\u{9b}31m\u{202e}";
const event = { number: 1, at: 0, type: "announced", kid: "a", use: "sig", reason: "why" };
const printed = (text: string): boolean => !/[^\n -~]/.test(text);

async function start(t: TestContext, forged: object) {
  const data = await temporaryFolder(t);
  const cli = (...args: readonly string[]) => runCli(t, [...args, "--data", data]);
  const file = join(data, "first.jwk");
  await writeFile(file, JSON.stringify(named("first")), { mode: 0o600 });
  assert.equal((await cli("keys", "import", file)).code, 0);
  await rename(join(data, "wrapping.key"), join(data, "away"));
  const store = await sqliteStore(join(data, "keys.db"));
  const { text = "", version } = await store.read();
  const document = { ...parseDocument(unsealed(text)), events: [forged] };
  assert.ok(await store.write(`a.b.c\n${JSON.stringify(document)}`, version));
  await store.close();
  return cli;
}

for (const member of ["type", "kid", "use", "reason"] as const) {
  test(`a terminal obeys nothing of the ${member} of an event, and no line is forged`, async (t) => {
    const cli = await start(t, { ...event, [member]: attack });
    const [text, json] = [await cli("events", "--limit", "1"), await cli("events", "--limit", "1", "--json")];
    for (const { stderr } of [text, json]) assert.match(stderr, /not verified/);
    assert.ok(printed(text.stdout), JSON.stringify(text.stdout));
    assert.equal(text.stdout.split("\n").filter((line) => /^\s*\d+  /.test(line)).length, 1);
    assert.ok(printed(json.stdout), JSON.stringify(json.stdout));
    assert.equal((JSON.parse(json.stdout) as Record<string, string>[])[0]?.[member], attack);
  });
}
