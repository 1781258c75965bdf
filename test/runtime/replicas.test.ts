import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { builtClone } from "../support/build.ts";
import { skipWithout } from "../support/parts.ts";

/** Returns the kids that every request found. */
const found = (output: string): string[] => /^12 of 12 requests found (.+)$/m.exec(output)?.[1]?.split(" ") ?? [];

test(
  "replicas with PostgreSQL and nginx: clients notice neither a rotation nor a killed replica (examples/replicas/run)",
  { skip: skipWithout("initdb", "nginx", "curl"), timeout: 300_000 },
  async () => {
    const clone = await builtClone();
    const { stdout, stderr } = await promisify(execFile)(join(clone, "examples/replicas/run"));
    assert.equal(stderr, "");
    const [, started = "", announced = "", killed = "", activated = "", token = "", restarted = ""] = stdout
      .split(/^== /m)
      .slice(1);
    const [first = "", ...others] = found(started);
    assert.deepEqual([first.length, others], [43, []]);
    const [, next = ""] = found(announced);
    assert.match(announced, /3 of 3 have caught up/);
    assert.deepEqual(
      [found(announced), found(killed)],
      [
        [first, next],
        [first, next],
      ],
    );
    assert.match(activated, /2 of 3 have caught up\.\n.* "b", last check-in/);
    assert.ok(token.includes(`"kid":"${next}"`), token);
    assert.deepEqual(
      [found(token), found(restarted)],
      [
        [next, first],
        [next, first],
      ],
    );
    for (const name of ["a", "b", "c"]) assert.match(restarted, new RegExp(`^${name} .*the latest`, "m"));
  },
);
