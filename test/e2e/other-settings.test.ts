import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { calculateJwkThumbprint } from "jose";
import { newWrappingKey, wrappingKeyOf } from "../support/managed.ts";
import { runCli, startService, temporaryFolder } from "../support/service.ts";

// A command that was not given the settings of the service: it goes by what is in the store.

async function dataOf(t: TestContext): Promise<string> {
  return join(await temporaryFolder(t), "data");
}

/** In how many days the next key is announced. */
async function announcedInDays(t: TestContext, args: readonly string[]): Promise<[days: number, stderr: string]> {
  const { code, stdout, stderr } = await runCli(t, ["plan", "--json", ...args]);
  assert.equal(code, 0, stderr);
  const { now, steps } = JSON.parse(stdout) as { now: string; steps: { action: string; at: string }[] };
  const { at = "" } = steps.find(({ action }) => action === "announced") ?? {};
  return [Math.round((Date.parse(at) - Date.parse(now)) / 86_400_000), stderr];
}

test("plan and --dry-run go by the policy of the store, and serve warns of a flag that differs", async (t) => {
  const data = await dataOf(t);
  const policy = ["--rotate-every-days", "30", "--max-token-lifetime-seconds", "7200"];
  const first = await startService(t, ["--data", data, ...policy]);
  for (const flags of [[], ["--rotate-every-days", "60"]]) {
    assert.deepEqual(await announcedInDays(t, ["--data", data, ...flags]), [29, ""]);
  }
  const dry = await runCli(t, ["rotate", "--dry-run", "--json", "--data", data]);
  const { changes } = JSON.parse(dry.stdout) as { changes: { retireForSeconds: number }[] };
  assert.deepEqual(
    changes.map(({ retireForSeconds }) => retireForSeconds),
    [3600 + 7200 + 600],
  );
  const token = await runCli(t, ["token", "--data", data, "--aud", "api", "--lifetime", "7200"]);
  assert.equal(token.code, 0, token.stderr);

  const second = await startService(t, ["--data", data, "--rotate-every-days", "60"]);
  for (const { log, differs } of [
    { log: first.log, differs: false },
    { log: second.log, differs: true },
  ]) {
    const warned = log.some(({ msg }) => /--rotate-every-days.*jwksd policy/.test(msg));
    assert.equal(warned, differs, JSON.stringify(log));
  }
  const changed = await runCli(t, ["policy", "--rotate-every-days", "60", "--data", data]);
  assert.equal(changed.code, 0, changed.stderr);
  assert.deepEqual(await announcedInDays(t, ["--data", data]), [59, ""]);
});

test("rewrap refuses while a replica that runs lacks the wrapping key, and names both", async (t) => {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  const first = await startService(t, ["--data", data, "--replica-name", "one"]);
  const [own, next] = [await wrappingKeyOf(data), newWrappingKey()];
  const file = join(folder, "keys");
  await writeFile(file, `${next}\n${own}\n`, { mode: 0o600 });
  const rewrap = (...more: readonly string[]) =>
    runCli(t, ["keys", "rewrap", "--data", data, "--wrapping-key-file", file, ...more]);
  const id = await calculateJwkThumbprint({ kty: "oct", k: next });
  for (const more of [[], ["--dry-run"]]) {
    const { code, stderr } = await rewrap(...more);
    assert.equal(code, 1);
    assert.match(
      stderr,
      new RegExp(
        `nothing was changed: .* under the wrapping key ${id}, and these replicas do not have it: "one" \\(last`,
      ),
    );
  }
  // Any other change leaves the store under its key, so the replica follows.
  for (const args of [["rotate"], ["rotate", "--now", "--yes"]]) {
    const { code, stderr } = await runCli(t, [...args, "--data", data, "--wrapping-key-file", file]);
    assert.equal(code, 0, stderr);
  }
  await first.stop();
  await startService(t, ["--data", data, "--wrapping-key-file", file, "--replica-name", "one"]);

  const { code, stderr } = await rewrap();
  assert.equal(code, 0, stderr);
});
