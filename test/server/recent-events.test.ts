import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../src/service/config/logger.ts";
import { recentEvents } from "../../src/service/endpoint/recent-events.ts";
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

test("whoever watches is told of each event, which is remembered by then", () => {
  const { log, events, watch } = recentEvents(
    createLogger("silent", () => {}),
    simulatedClock(),
  );
  const told: (string | undefined)[] = [];
  watch(() => told.push(events()[0]?.message));
  log.info("one");
  log.warn("two");
  assert.deepEqual(told, ["one", "two"]);
});
