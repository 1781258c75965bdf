// Loaded by scripts/test before each file: otherwise, a file that leaves something open after its tests would never end.

import { after } from "node:test";

const leftMs = 10_000;
const file = process.argv[1] ?? "";

function end(): never {
  console.error(`${file}: a server, a process or a timer is left open; close it with t.after`);
  process.exit(1);
}

// Processes that a test forks load this, too.
if (file.endsWith(".test.ts")) after(() => void setTimeout(end, leftMs).unref());
