import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import type { KeyManagerEvent } from "../../src/rotation/manager/types.ts";
import type { AuditEvent } from "../../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { createLog } from "../../src/service/config/logger.ts";
import { createLogger, fileWriter } from "../../src/service/config/logger.ts";
import { resolveSettings } from "../../src/service/config/settings.ts";
import { storeSettingsOf } from "../../src/service/config/store-settings.ts";
import { recentEvents } from "../../src/service/endpoint/recent-events.ts";
import { createManagerLog } from "../../src/service/keys/manager-log.ts";
import { day, hour, record, start, tombstone } from "../rules/key-records.ts";
import { temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";

// A newline, a clear-screen sequence and its one-character form, a change of text direction, and a line separator.
const odd = "a\n12:00:00 error b\u001b[2J\u009b2J\u202e\u2028";

function logged(json: boolean, fields: object, message: string): string {
  let text = "";
  const output = { write: (line: string) => (text += line) };
  createLog({ logLevel: "info", jsonLogs: json }, { stdout: output, stderr: output }).info(fields, message);
  return text;
}

describe("the text log has one line per event and no terminal control characters", () => {
  const rows: readonly (readonly [name: string, fields: object, message: string, line: string])[] = [
    ["ordinary values", { kid: "2026-11", count: 2 }, "started", "info started kid=2026-11 count=2"],
    [
      "a kid",
      { kid: odd },
      "key added",
      String.raw`info key added kid="a\n12:00:00 error b\u001b[2J\u{9b}2J\u{202e}\u{2028}"`,
    ],
    ["kids", { kids: ["\u009b", "b"] }, "started", String.raw`info started kids=["\u{9b}","b"]`],
    [
      "a path in a message",
      {},
      `cannot read ${odd}`,
      String.raw`info cannot read a\u{a}12:00:00 error b\u{1b}[2J\u{9b}2J\u{202e}\u{2028}`,
    ],
    ["a value that looks like a field", { kid: "a code=b" }, "x", 'info x kid="a code=b"'],
    ["letters of other alphabets", { kid: "schlüssel", path: "/鍵" }, "x", "info x kid=schlüssel path=/鍵"],
  ];
  for (const [name, fields, message, line] of rows) {
    test(name, () => {
      const [, rest] = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC (.*)$/s.exec(logged(false, fields, message)) ?? [];
      assert.equal(rest, `${line}\n`);
    });
  }
});

test("the JSON log contains no terminal control characters, and parses to the original values", () => {
  const text = logged(true, { kids: [odd] }, odd);
  assert.match(text, /^[ -~]+\n$/);
  const { kids, msg } = JSON.parse(text) as { kids: string[]; msg: string };
  assert.deepEqual({ kids, msg }, { kids: [odd], msg: odd });
});

const source = import.meta.resolve("../../src/service/config/logger.ts");

describe("the logger", () => {
  test("writes a JSON line with level, time, fields and message", () => {
    const lines: string[] = [];
    const log = createLogger("debug", (line) => lines.push(line));
    log.info("started");
    log.warn({ kid: "a\n" }, "100 % odd");
    const before = Date.now();
    log.error({ missing: undefined }, "");
    const events = lines.map((line) => JSON.parse(line) as { time: number });
    assert.deepEqual(
      events.map(({ time: _time, ...event }) => event),
      [
        { level: 30, msg: "started" },
        { level: 40, kid: "a\n", msg: "100 % odd" },
        { level: 50, msg: "" },
      ],
    );
    assert.ok((events[2]?.time ?? 0) >= before);
    for (const line of lines) assert.match(line, /^[^\n]+$/);
  });

  for (const [level, written] of [
    ["debug", ["info", "warn", "error"]],
    ["info", ["info", "warn", "error"]],
    ["warn", ["warn", "error"]],
    ["error", ["error"]],
    ["silent", []],
  ] as const) {
    test(`at level ${level}, writes ${written.join(", ") || "nothing"}`, () => {
      const lines: string[] = [];
      const log = createLogger(level, (line) => lines.push((JSON.parse(line) as { msg: string }).msg));
      for (const name of ["info", "warn", "error"] as const) log[name](name);
      assert.deepEqual(lines, written);
    });
  }
});

describe("the file writer", () => {
  test("writes before the call returns", async (t) => {
    const path = join(await temporaryFolder(t), "log");
    const fd = openSync(path, "w");
    const write = fileWriter(fd);
    for (const line of ["é\n", "", "2\n"]) write(line);
    assert.equal(readFileSync(path, "utf8"), "é\n2\n");
    closeSync(fd);
  });

  test("ignores text that cannot be written", { skip: !existsSync("/dev/full") }, () => {
    const fd = openSync("/dev/full", "w");
    fileWriter(fd)("a line\n");
    closeSync(fd);
  });

  test("waits for the reader if a pipe is full", async () => {
    // After its first use, process.stdout makes the pipe non-blocking.
    const program = `
      import { fileWriter } from ${JSON.stringify(source)};
      const write = fileWriter(process.stdout.fd);
      for (let line = 0; line < 500; line += 1) write("x".repeat(4000) + "\\n");`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const exited = once(child, "exit");
    assert.equal(await text(child.stdout), `${"x".repeat(4000)}\n`.repeat(500));
    assert.deepEqual(await exited, [0, null]);
  });

  test("does not end the process if the reader has closed the pipe", async () => {
    const program = `
      import { fileWriter } from ${JSON.stringify(source)};
      const write = fileWriter(process.stdout.fd);
      process.once("message", () => { for (let line = 0; line < 9; line += 1) write("line\\n"); process.exit(7); });
      process.send("ready");`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit", "ipc"],
    });
    const exited = once(child, "exit");
    await once(child, "message");
    child.stdout?.destroy();
    await once(child.stdout ?? child, "close");
    child.send("go");
    assert.deepEqual(await exited, [7, null]);
  });
});

test("the log keeps the 50 most recent events, newest first, even those below the log level", () => {
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

const settings = storeSettingsOf(await resolveSettings({ flags: {}, environment: {} }));
const active = record("a", "active", { announcedAt: start - day, activatedAt: start - day });
const next = record("b", "announced", { announcedAt: start });
const step = (type: AuditEvent["type"], kid = "b"): AuditEvent => ({ at: start, type, kid, use: "sig", reason: "why" });
const error = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");

/** Returns the log lines for these events, each with its level: 30 is info, 40 a warning, 50 an error. */
function linesOf(events: (clock: ReturnType<typeof simulatedClock>) => readonly KeyManagerEvent[]): string[] {
  const clock = simulatedClock();
  const lines: string[] = [];
  const log = createLogger("info", (line) => {
    const { level, msg, kid, reason, by } = JSON.parse(line) as Record<string, string | undefined>;
    lines.push([level, msg, kid, reason, by].filter((part) => part !== undefined).join(" | "));
  });
  const managerLog = createManagerLog(settings, log, clock);
  managerLog.started([active]);
  for (const event of events(clock)) managerLog.logEvent(event);
  return lines;
}

test("logs a step with the same message and reason whichever process takes it, logs revocations as warnings, and logs every mode change", () => {
  const policy: AuditEvent = { at: start, type: "policy", reason: "rotateEveryDays 90 -> 30" };
  const lines = linesOf(() => [
    { type: "changed", by: "this", records: [active, next], events: [step("announced")] },
    { type: "changed", by: "another", records: [active, next], events: [policy] },
    { type: "changed", by: "another", records: [active, tombstone("b", "revoked")], events: [step("revoked")] },
  ]);
  assert.deepEqual(lines, [
    "30 | key announced | b | why",
    "30 | rotation mode is on: caches keep the set for 5 minutes",
    "30 | policy changed | rotateEveryDays 90 -> 30 | another process",
    "40 | key revoked | b | why | another process",
    "30 | rotation mode is off: caches keep the set for up to 2 hours",
  ]);
});

test("the log line about an outage says how long the last keys stay in use, and the log line about a different policy names the command that changes the policy", () => {
  const lines = linesOf((clock) => [
    { type: "failed", error, retryInMs: 1, staleAt: clock.now() + hour },
    { type: "failed", error, retryInMs: 1, staleAt: clock.now() },
    { type: "policy-differs", given: { rotateEveryDays: 30 }, stored: rotationPolicy() },
    { type: "store-nearly-full", bytes: 50_000, maxBytes: 65_535 },
    { type: "store-emptied", error: new StoreError("ERR_STORE_EMPTY", "processes of it are running: a") },
  ]);
  assert.match(
    lines[0] ?? "",
    /^50 \| keys cannot be managed: no route.*; the last valid keys are used until 20.* UTC/,
  );
  assert.match(lines[1] ?? "", /no route.*; the last valid keys no longer sign/);
  assert.match(
    lines[2] ?? "",
    /^40 .*--rotate-every-days is 30 here and 90 in the store; .*jwksd policy --rotate-every-days 30$/,
  );
  assert.match(
    lines[3] ?? "",
    /^40 .*uses 50,000 of the 65,535 bytes allowed.*; before the store is full, copy .* with: jwksd store migrate$/,
  );
  assert.equal(lines[4], "40 | processes of it are running: a");
});
