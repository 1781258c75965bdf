import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { handleSignals } from "../../src/cli/signals.ts";

type Running = Awaited<Parameters<typeof handleSignals>[0]>;

/** As the system sends them. */
const send = async (...signals: readonly NodeJS.Signals[]): Promise<void> => {
  for (const signal of signals) process.emit(signal, signal);
  await turn();
};

/** A command that is about to start, and what it is told then. */
function starting(t: TestContext) {
  const told: string[] = [];
  const { promise, resolve } = Promise.withResolvers<Running>();
  const giveUp = handleSignals(promise, () => void told.push("asked to end"));
  t.after(giveUp);
  t.mock.method(process, "exit", (code: number) => void told.push(`exit ${code}`));
  const start = async (): Promise<void> => {
    resolve({
      reload: async () => void told.push("reload"),
      stop: async (signal) => void told.push(`stop by ${signal}`),
    });
    await turn();
  };
  return { told, start, giveUp };
}

test("signals during the start are obeyed after it", async (t) => {
  const { told, start } = starting(t);
  await send("SIGHUP", "SIGTERM");
  assert.deepEqual(told, ["asked to end"]);
  await start();
  assert.deepEqual(told, ["asked to end", "reload", "stop by SIGTERM"]);
});

test("SIGTERM ends it once, however often it comes, and only a Ctrl-C after that does not wait", async (t) => {
  for (const [signals, expected] of [
    [["SIGINT"], ["asked to end", "stop by SIGINT"]],
    [
      ["SIGTERM", "SIGTERM"],
      ["asked to end", "stop by SIGTERM"],
    ],
    [
      ["SIGTERM", "SIGINT"],
      ["asked to end", "exit 130", "stop by SIGTERM"],
    ],
    [
      ["SIGINT", "SIGTERM"],
      ["asked to end", "stop by SIGINT"],
    ],
  ] as const) {
    const { told, start, giveUp } = starting(t);
    await start();
    await send(...signals);
    giveUp();
    assert.deepEqual(told.toSorted(), expected.toSorted(), signals.join());
  }
});

test("who has ended gives the signals up", async (t) => {
  const before = process.listenerCount("SIGTERM");
  starting(t).giveUp();
  assert.equal(process.listenerCount("SIGTERM"), before);
});
