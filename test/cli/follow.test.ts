import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { describe, test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import { follow, followedLines } from "../../src/cli/keys/follow.ts";
import type { Io } from "../../src/cli/io.ts";
import type { StoreDocument } from "../../src/rotation/custody/document.ts";
import { type ProcessLine, lineText } from "../../src/rotation/custody/presence.ts";
import type { Changed, StoreAccess } from "../../src/rotation/manager/store-access.ts";
import { record, second, start, tombstone } from "../rotation/key-records.ts";
import { processLine, storeDocument } from "../support/store-view.ts";

const change = { document: { revision: 5 }, events: [{}] } as unknown as Changed;

/** A command on a store that gives these lines one after the other, or an error. */
function command(
  answers: readonly (readonly ProcessLine[] | StoreError)[],
  { isTTY = false, document = storeDocument([]) }: { isTTY?: boolean; document?: StoreDocument } = {},
) {
  let written = "";
  const rest = [...answers];
  const access = {
    async lines() {
      const answer = (rest.length > 1 ? rest.shift() : rest[0]) ?? [];
      if (answer instanceof StoreError) throw answer;
      return new Map(answer.map((line) => [line.id, lineText(line)]));
    },
    read: async () => ({ document, now: start }),
  } as unknown as StoreAccess;
  const stderr = { isTTY, columns: 40, write: (text: string) => (written += text) };
  const io: Io = { stdin: Readable.from([]), stdout: stderr, stderr, environment: {}, exitCode: 0 };
  return { io, keys: { io, access }, written: () => written };
}

const gone = (endedAt: number) => tombstone("t", "revoked", { endedAt });

const behind = [processLine("r", { name: "late\u{202e}", revision: 4 })];
const followed = [processLine("r")];

describe("waiting for the replicas", () => {
  test("shows on a terminal for whom it waits, on one line that is gone in the end", async () => {
    const { keys, io, written } = command([behind, behind, followed], { isTTY: true });
    assert.deepEqual((await follow(keys, change, 9))?.late, []);
    assert.equal(io.exitCode, 0);
    // On a slow machine it says the seconds that are left more than once.
    const lines = written().split("\r\u{1b}[K");
    assert.deepEqual([lines[0], lines[1], lines.at(-1)], ["", "waiting for late\\u{202e} (9 s)", ""]);
    assert.ok(lines.slice(1, -1).every((line) => line.startsWith("waiting for late")));
  });

  test("shows nothing elsewhere", async () => {
    const { keys, written } = command([behind, followed]);
    await follow(keys, change, 9);
    assert.equal(written(), "");
  });

  test("where the store cannot be asked any more, the change is done all the same, and the exit code says that nobody knows", async () => {
    const { keys, io, written } = command([behind, new StoreError("ERR_STORE_UNAVAILABLE", "no route to host")]);
    assert.equal(await follow(keys, change, 9), undefined);
    assert.equal(io.exitCode, 3);
    assert.match(
      written(),
      /^jwksd: the change is done; who follows is not known.*no route to host \[ERR_STORE_UNAVAILABLE\]\n$/,
    );
  });

  test("is for those who may serve or sign: each has followed that publishes the change, or a later one of the same history", async () => {
    const later = storeDocument([], { revision: 6, commits: ["c5", "c6"] });
    const dead = processLine("dead", { revision: 1, at: start - 3_600_000 });
    const rows: [name: string, line: ProcessLine, document: StoreDocument | undefined, waits: number, code: number][] =
      [
        ["it publishes the change", processLine("r"), undefined, 120, 0],
        ["it publishes a later one", processLine("r", { revision: 6 }), later, 120, 0],
        ["it is late", processLine("r", { revision: 4 }), undefined, 0.001, 3],
        ["it has just started", processLine("r", { revision: 0, commit: undefined }), undefined, 0.001, 3],
        ["it is late, and nobody waits", processLine("r", { revision: 4 }), undefined, 0, 0],
        // After an older copy was restored. Nobody waits for them, and they are told in any case.
        ["it is ahead of the store", processLine("r", { revision: 6 }), undefined, 120, 3],
        ["it has another revision of this number", processLine("r", { commit: "other" }), undefined, 120, 3],
        ["it is ahead, and nobody waits", processLine("r", { revision: 6 }), undefined, 0, 3],
      ];
    const found = await Promise.all(
      rows.map(async ([name, line, document, waits]) => {
        const { keys, io } = command([[line, dead]], document && { document });
        const began = performance.now();
        const late = (await follow(keys, change, waits))?.late.length ?? 0;
        return [name, io.exitCode, late > 0, performance.now() - began < 60_000];
      }),
    );
    assert.deepEqual(
      found,
      rows.map(([name, , , , code]) => [name, code, code === 3, true]),
    );
  });

  test("says what one that refuses an older copy does", async () => {
    const { keys } = command([[processLine("r", { revision: 6 }), processLine("s")]]);
    const told = await follow(keys, change, 0);
    assert.ok(told);
    const [count, why = ""] = followedLines(told);
    assert.equal(count, "1 of 2 follow.");
    assert.match(why, /^Replica "r".* publishes revision 6, which the store no longer has\. It refuses an older copy/);
  });

  test("names the copies that lack a step or a revocation, and are served", async () => {
    const copy = { name: "s3://bucket", revision: 3, at: start };
    const next = { ...record("b", "announced", { announcedAt: start }), stateRevision: 5 };
    const rows: [name: string, document: StoreDocument, lacks: boolean][] = [
      ["a step", storeDocument([next], { copies: [copy] }), true],
      ["a step that it has", storeDocument([next], { copies: [{ ...copy, revision: 5 }] }), false],
      ["a step, and nobody reads it yet", storeDocument([next], { copies: [{ ...copy, revision: 0 }] }), false],
      ["a revocation", storeDocument([gone(start + second)], { copies: [copy] }), true],
      ["a revocation that it has", storeDocument([gone(start - second)], { copies: [copy] }), false],
    ];
    for (const [name, document, lacks] of rows) {
      const { keys, io } = command([followed], { document });
      const told = await follow(keys, change, 0.001);
      assert.deepEqual([io.exitCode, followedLines(told ?? assert.fail()).length], lacks ? [3, 2] : [0, 1], name);
    }
  });
});
