import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { createLogger, fileWriter } from "../../src/service/config/logger.ts";
import { temporaryFolder } from "../support/service.ts";

const source = import.meta.resolve("../../src/service/config/logger.ts");

describe("a logger", () => {
  test("writes a line of JSON with level, time, fields and message", () => {
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
    test(`of level ${level} writes ${written.join(", ") || "nothing"}`, () => {
      const lines: string[] = [];
      const log = createLogger(level, (line) => lines.push((JSON.parse(line) as { msg: string }).msg));
      for (const name of ["info", "warn", "error"] as const) log[name](name);
      assert.deepEqual(lines, written);
    });
  }

  for (const level of ["INFO", "trace", "", "constructor"]) {
    test(`of level ${JSON.stringify(level)} is refused`, () => {
      assert.throws(() => createLogger(level, () => {}), { code: "ERR_OPTION_INVALID" });
    });
  }
});

describe("texts for a file", () => {
  test("are written before the call returns", async (t) => {
    const path = join(await temporaryFolder(t), "log");
    const fd = openSync(path, "w");
    const write = fileWriter(fd);
    for (const line of ["é\n", "", "2\n"]) write(line);
    assert.equal(readFileSync(path, "utf8"), "é\n2\n");
    closeSync(fd);
  });

  test("that cannot be written are lost, and no more", { skip: !existsSync("/dev/full") }, () => {
    const fd = openSync("/dev/full", "w");
    fileWriter(fd)("a line\n");
    closeSync(fd);
  });

  test("wait for the reader of a pipe that is full", async () => {
    // Standard output, once looked at, is a pipe that does not block.
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

  test("that nobody reads any more end nothing", async () => {
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
