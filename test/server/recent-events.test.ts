import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../src/server/logger.ts";
import { recentEvents } from "../../src/server/recent-events.ts";
import { simulatedClock } from "../support/simulated.ts";

test("the newest 50 events are remembered, newest first, whatever the log leaves out", () => {
  const lines: string[] = [];
  const clock = simulatedClock();
  const recent = recentEvents(
    createLogger("error", (line) => lines.push(line)),
    clock,
  );
  for (let number = 1; number <= 51; number += 1) recent.log.info(`event ${number}`);
  recent.log.error({ code: "ERR_X", kids: ["a", "b"], pid: 7, admin: undefined }, "last");
  assert.equal(recent.events().length, 50);
  assert.equal(recent.events().at(-1)?.message, "event 3");
  assert.deepEqual(recent.events()[0], {
    at: clock.now(),
    level: "error",
    message: "last",
    details: { code: "ERR_X", kids: '["a","b"]', pid: "7" },
  });
  assert.equal(lines.length, 1);
});

test("whoever watches is told of each event until the end", () => {
  const { log, watch } = recentEvents(
    createLogger("silent", () => {}),
    simulatedClock(),
  );
  const watching = new AbortController();
  let told = 0;
  watch(() => (told += 1), watching.signal);
  log.info("one");
  log.warn("two");
  watching.abort();
  log.info("three");
  watch(() => (told += 1), watching.signal);
  log.info("four");
  assert.equal(told, 2);
});
