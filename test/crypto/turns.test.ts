import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { inTurn, wholeTurn } from "../../src/keys/crypto/event-loop-turns.ts";

test("runs four operations immediately, and four more in each later turn of the event loop, in order", async () => {
  await nextTurn();
  const done: number[] = [];
  const results = Array.from({ length: 11 }, (_, index) => inTurn(() => done.push(index)));
  assert.deepEqual(
    results.map((result) => result instanceof Promise),
    [false, false, false, false, true, true, true, true, true, true, true],
  );
  const counts: number[] = [];
  for (let turn = 0; turn < 4; turn += 1) {
    counts.push(done.length);
    await nextTurn();
  }
  assert.deepEqual(counts, [4, 8, 11, 11]);
  assert.deepEqual(
    done,
    done.toSorted((one, other) => one - other),
  );
  assert.equal(
    inTurn(() => "immediately again"),
    "immediately again",
  );
});

test("an operation that takes a whole turn gets its own turn", async () => {
  await nextTurn();
  const done: string[] = [];
  const kinds = ["part", "whole", "part", "whole", "whole", "part", "part"];
  for (const kind of kinds) void inTurn(() => done.push(kind), kind === "whole" ? wholeTurn : 1);
  const counts: number[] = [];
  for (let turn = 0; turn < 6; turn += 1) {
    counts.push(done.length);
    await nextTurn();
  }
  assert.deepEqual(counts, [1, 2, 3, 4, 5, 7]);
  assert.deepEqual(done, kinds);
  assert.equal(
    inTurn(() => "immediately", wholeTurn),
    "immediately",
  );
  assert.ok(inTurn(() => "later") instanceof Promise);
});

test("queues an operation behind those that are already waiting", async () => {
  await nextTurn();
  const done: string[] = [];
  for (let index = 0; index < 8; index += 1) void inTurn(() => done.push("before"));
  await nextTurn();
  const late = inTurn(() => done.push("late"));
  assert.ok(late instanceof Promise);
  await late;
  assert.deepEqual(done, [...Array.from({ length: 8 }, () => "before"), "late"]);
});

function failing(): never {
  throw new Error("no");
}

test("an operation's error is thrown or rejects its promise, and does not delay other operations", async () => {
  await nextTurn();
  for (let index = 0; index < 4; index += 1) assert.throws(() => inTurn(failing), { message: "no" });
  const later: Promise<never> = inTurn(failing);
  const after = inTurn(() => "after");
  await assert.rejects(later, { message: "no" });
  assert.equal(await after, "after");
});

test("a loop that never pauses does not block the event loop", async () => {
  const signal = AbortSignal.timeout(1);
  while (!signal.aborted) await inTurn(() => {});
});
