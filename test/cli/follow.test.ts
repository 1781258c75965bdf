import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { describe, test } from "node:test";
import { follow, followedLines } from "../../src/cli/keys/follow.ts";
import type { CommandKeys } from "../../src/cli/keys/open-keys.ts";
import { StoreError } from "../../src/base/errors.ts";
import type { Changed } from "../../src/rotation/manager/compare-and-set.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { Lease, Snapshot } from "../../src/rotation/store/store.ts";
import { lease, start } from "../rotation/key-records.ts";

const change = { revision: 5, events: [{}] } as unknown as Changed;

/** A command on a store that gives these leases one after the other, or an error. */
function command(answers: readonly (readonly Lease[] | StoreError)[], isTTY: boolean, revision = 5) {
  let written = "";
  const rest = [...answers];
  const load = async (): Promise<Snapshot> => {
    const answer = rest.length > 1 ? rest.shift() : rest[0];
    if (answer instanceof StoreError) throw answer;
    return { revision, records: [], now: start, leases: answer ?? [], ended: [] };
  };
  const stderr = { isTTY, columns: 40, write: (text: string) => (written += text) };
  const io = { stdin: Readable.from([]), stdout: stderr, stderr, environment: {}, exitCode: 0 };
  const keys = { io, custody: { store: { load } }, keyring: { policy: rotationPolicy() } } as unknown as CommandKeys;
  return { io, keys, written: () => written };
}

const behind = [lease("r", { name: "late\u{202e}", publishes: 4 })];
const followed = [lease("r", { publishes: 5 })];

describe("waiting for the replicas", () => {
  test("shows on a terminal for whom it waits, on one line that is gone in the end", async () => {
    const { keys, io, written } = command([behind, behind, followed], true);
    assert.deepEqual((await follow(keys, change, 9))?.late, []);
    assert.equal(io.exitCode, 0);
    // On a slow machine it says the seconds that are left more than once.
    const lines = written().split("\r\u{1b}[K");
    assert.deepEqual([lines[0], lines[1], lines.at(-1)], ["", "waiting for late\\u{202e} (9 s)", ""]);
    assert.ok(lines.slice(1, -1).every((line) => line.startsWith("waiting for late")));
  });

  test("shows nothing elsewhere", async () => {
    const { keys, written } = command([behind, followed], false);
    await follow(keys, change, 9);
    assert.equal(written(), "");
  });

  test("where the store cannot be asked any more, the change is done all the same, and the exit code says that nobody knows", async () => {
    const { keys, io, written } = command([behind, new StoreError("ERR_STORE_UNAVAILABLE", "no route to host")], false);
    assert.equal(await follow(keys, change, 9), undefined);
    assert.equal(io.exitCode, 3);
    assert.match(
      written(),
      /^jwksd: the change is done; who follows is not known.*no route to host \[ERR_STORE_UNAVAILABLE\]\n$/,
    );
  });

  test("a replica that publishes a later change has followed this one, too", async () => {
    const { keys, io } = command([[lease("r", { publishes: 6 })]], false, 6);
    assert.deepEqual([(await follow(keys, change, 9))?.late, io.exitCode], [[], 0]);
  });

  test("a replica that is ahead of the store refuses it, as after an older copy was restored: it has not followed", async () => {
    for (const [publishes, code] of [
      [5, 0],
      [6, 3],
    ] as const) {
      const { keys, io } = command([[lease("r", { publishes })]], false);
      const followed = await follow(keys, change, 0.001);
      assert.deepEqual([followed?.late.length, io.exitCode], [code === 0 ? 0 : 1, code]);
      if (followed === undefined || code === 0) continue;
      const [count, why] = followedLines(followed, { ...change, records: [] });
      assert.equal(count, "0 of 1 publish the change.");
      assert.match(
        why ?? "",
        /^Replica "r".* publishes revision 6, which the store no longer has\. It refuses an older copy/,
      );
    }
  });
});
