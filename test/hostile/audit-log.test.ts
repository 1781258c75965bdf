// No MAC covers the audit log: whoever can write the store can write any row into it.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, test } from "node:test";
import { named } from "../support/keys.ts";
import { runCli, temporaryFolder } from "../support/service.ts";

const attack = "\u{1b}]52;c;Y3VybCBldmlsfHNo\u{7}\n9  2026-01-01 00:00:00 UTC  revoked sig forged\u{9b}31m\u{202e}";
const event = { at: 0, type: "announced", kid: "a", use: "sig", reason: "why" };
const printed = (text: string): boolean => !/[^\n -~]/.test(text);

async function start(t: TestContext, rows: readonly object[]) {
  const data = await temporaryFolder(t);
  const cli = (...args: readonly string[]) => runCli(t, [...args, "--data", data]);
  const file = join(data, "first.jwk");
  await writeFile(file, JSON.stringify(named("first")), { mode: 0o600 });
  assert.equal((await cli("keys", "import", file)).code, 0);
  const database = new DatabaseSync(join(data, "keys.db"));
  for (const row of rows) database.prepare("INSERT INTO events (event) VALUES (?)").run(JSON.stringify(row));
  database.close();
  return cli;
}

for (const member of ["type", "kid", "use", "reason"] as const) {
  test(`a terminal obeys nothing of the ${member} of an event, and no line is forged`, async (t) => {
    const cli = await start(t, [{ ...event, [member]: attack }]);
    const [text, json] = [await cli("events", "--limit", "1"), await cli("events", "--limit", "1", "--json")];
    assert.deepEqual([text.code, json.code], [0, 0]);
    assert.ok(printed(text.stdout), JSON.stringify(text.stdout));
    assert.equal(text.stdout.split("\n").filter((line) => /^\s*\d+  /.test(line)).length, 1);
    assert.ok(printed(json.stdout), JSON.stringify(json.stdout));
    assert.equal((JSON.parse(json.stdout) as Record<string, string>[])[0]?.[member], attack);
  });
}

test("rows that are no events are left out, and counted", async (t) => {
  const wrong = [{ kid: 5 }, { kid: null }, { at: 1e300 }, { at: "x" }, { reason: {} }, { type: ["a"] }];
  const cli = await start(t, [
    event,
    ...wrong.map((row) => Object.assign({}, event, row)),
    { ...event, use: undefined },
  ]);
  for (const args of [[], ["--json"]]) {
    const { code, stdout, stderr } = await cli("events", "--limit", "8", ...args);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /why/);
    assert.match(stderr, /7 rows of the audit log are no events, and are left out/);
  }
});
