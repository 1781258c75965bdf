import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { describe, test, type TestContext } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { InvalidArgumentError } from "commander";
import fc from "fast-check";
import { ConfigError, JwksdError, StoreError } from "../../src/base/errors.ts";
import { addClaim } from "../../src/cli/claim-argument.ts";
import { errorText } from "../../src/cli/error-text.ts";
import type { Io } from "../../src/cli/io.ts";
import { resolveKid } from "../../src/cli/managed-keys/resolve-kid.ts";
import { catchUpLines, waitForReplicas } from "../../src/cli/managed-keys/wait-for-replicas.ts";
import { handleSignals } from "../../src/cli/signals.ts";
import type { StoreDocument } from "../../src/rotation/custody/document.ts";
import { newWrappingKey } from "../../src/rotation/custody/key-wrapping.ts";
import { type PresenceRecord, presenceText } from "../../src/rotation/custody/presence-records.ts";
import { createKeyManager } from "../../src/rotation/index.ts";
import type { Changed, StoreAccess } from "../../src/rotation/manager/store-access.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { record, start, tombstone, second } from "../rules/key-records.ts";
import { presenceRecord, storeDocument } from "../support/store-view.ts";

describe("a claim on the command line", () => {
  const rows: [text: string, value: unknown][] = [
    ["5", 5],
    ["-0.50", -0.5],
    ["0", 0],
    ["0.000", 0],
    ["1e3", 1000],
    ["1.5E+2", 150],
    ["1e21", 1e21],
    ["9007199254740991", 2 ** 53 - 1],
    ["0.1", 0.1],
    ["0.0000001", 1e-7],
    ["5e-324", 5e-324],
    ['"12345678901234567890"', "12345678901234567890"],
    ['{"__proto__":1}', JSON.parse('{"__proto__":1}')],
    ["[1,null,true]", [1, null, true]],
    ["read write", "read write"],
    ["12 apples", "12 apples"],
    ["a=b", "a=b"],
    ["", ""],
  ];
  for (const [text, value] of rows)
    test(`${text} is accepted`, () => assert.deepEqual(addClaim(`n=${text}`, { a: 1 }), { a: 1, n: value }));

  const changed = ["9007199254740993", "100000000000000000000", "1e999", "-1e999", '{"a":[1,{"b":1e400}]}'];
  for (const text of changed)
    test(`${text} is rejected because its value would change`, () => {
      assert.throws(() => addClaim(`n=${text}`), InvalidArgumentError);
    });

  test("__proto__ is a name like any other", () => {
    assert.deepEqual(Object.entries(addClaim("__proto__=1")), [["__proto__", 1]]);
  });

  test("property: accepts every JSON number except integers beyond 2^53 - 1", () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        fc.pre(!Number.isInteger(value) || Number.isSafeInteger(value) || Math.abs(value) >= 1e21);
        assert.deepEqual(addClaim(`n=${JSON.stringify(value)}`), { n: JSON.parse(JSON.stringify(value)) });
      }),
    );
  });
});

describe("a kid can be given in full or as a unique prefix", () => {
  const kids = ["abcdef", "abcdefgh", "abcxyz123", "xy", "2026-11-22", "-abcde7", "é漢字1234"];
  const records = kids.map((kid) => record(kid, "retiring", { announcedAt: start, retiredAt: start }));
  const rows: readonly (readonly [given: string, kid: string | undefined, ...says: string[]])[] = [
    ...kids.map((kid) => [kid, kid] as const),
    ["abcxyz", "abcxyz123"],
    ["abcdefg", "abcdefgh"],
    ["-abcde", "-abcde7"],
    ["2026-1", "2026-11-22"],
    ["abcxy", undefined, "use one of these kids, or a prefix of at least 6 characters:", ...kids.slice(0, 6)],
    ["", undefined, "a prefix of at least 6 characters"],
    ["abcdefX", undefined, "or a kid that begins with it", "- abcdefgh, sig retiring"],
    ["bcdefgh", undefined, "or a kid that begins with it"],
  ];
  for (const [given, kid, ...says] of rows) {
    test(`${given}: ${kid ?? "refused"}`, () => {
      if (kid !== undefined) return assert.equal(resolveKid(records, given), kid);
      assert.throws(
        () => resolveKid(records, given),
        ({ code, message }: { code: string; message: string }) => {
          assert.equal(code, "ERR_KID_UNMANAGED");
          assert.deepEqual(
            says.filter((part) => !message.includes(part)),
            [],
          );
          return true;
        },
      );
    });
  }

  test("an ambiguous prefix is rejected, and the kids that match are listed", () => {
    const many = ["abcdefg1", "abcdefg2", "other"].map((kid) => tombstone(kid, "removed"));
    assert.throws(() => resolveKid(many, "abcdefg"), {
      code: "ERR_OPTION_INVALID",
      message: '2 kids begin with "abcdefg"; add more characters:\n- abcdefg1, sig removed\n- abcdefg2, sig removed',
    });
  });
});

describe("replaces option names in the library's errors with flags", () => {
  const wrappingKeys = [newWrappingKey()];
  const store = memoryStore();
  const options = { issuer: "https://a.example", store, wrappingKeys };
  /** Creates a manager after another one has closed. */
  const second = async (more: object): Promise<unknown> => {
    await (await createKeyManager(options)).close();
    return createKeyManager({ ...options, ...more });
  };
  const rows: readonly (readonly [name: string, more: object, library: RegExp, text: RegExp])[] = [
    [
      "a policy",
      { initialPolicy: { rotateEveryDays: 1, announceForSeconds: 3600 } },
      /^announceForSeconds is 3600 but .*7200 s \(cacheSlackSeconds\)/,
      /^--announce-for-seconds is 3600 but .*7200 s \(--cache-slack-seconds\)/,
    ],
    [
      "a wrapping key that is not given",
      { wrappingKeys: newWrappingKey() },
      /not given \(given: [\w-]{43}\); add it to wrappingKeys along with the others; if that key is lost, see [^;]+$/,
      /add it to --wrapping-key-file or JWKSD_WRAPPING_KEYS along with the others; if that key is lost, see [^;]* \[ERR_WRAPPING_KEY_MISSING\]$/,
    ],
    [
      "the keys of another issuer",
      { issuer: "https://b.example" },
      /set the issuer to https:\/\/a\.example, or use a different store$/,
      /or use a different store; the relevant flags are --issuer, --store and --data \[ERR_STORE_ISSUER\]$/,
    ],
  ];
  for (const [name, more, library, text] of rows) {
    test(name, async () => {
      const error = await second(more).then(
        () => assert.fail("it was not refused"),
        (thrown: unknown) => thrown,
      );
      assert.ok(error instanceof JwksdError);
      assert.match(error.message, library);
      // A wrapping key's name, which is in quotation marks, may begin with two hyphens.
      assert.doesNotMatch(error.message, /(^|[^\w"])--[a-z]/);
      assert.match(errorText(error), text);
    });
  }

  test("but keeps member names in errors about a file", () => {
    const error = new ConfigError("ERR_OPTION_INVALID", '"rotateEveryDays" in the configuration file must be a number');
    assert.equal(errorText(error), `${error.message} [ERR_OPTION_INVALID]`);
  });
});

type Running = Awaited<Parameters<typeof handleSignals>[0]>;

/** Emits signals like the operating system. */
const send = async (...signals: readonly NodeJS.Signals[]): Promise<void> => {
  for (const signal of signals) process.emit(signal, signal);
  await turn();
};

/** A command that is about to start, and the calls that signals cause. */
function starting(t: TestContext) {
  const calls: string[] = [];
  const { promise, resolve } = Promise.withResolvers<Running>();
  const giveUp = handleSignals(promise, () => void calls.push("stop requested"));
  t.after(giveUp);
  t.mock.method(process, "exit", (code: number) => void calls.push(`exit ${code}`));
  const start = async (): Promise<void> => {
    resolve({
      reload: async () => void calls.push("reload"),
      stop: async (signal) => void calls.push(`stop by ${signal}`),
    });
    await turn();
  };
  return { calls, start, giveUp };
}

test("signals received during startup are handled", async (t) => {
  const { calls, start } = starting(t);
  await send("SIGHUP", "SIGTERM");
  assert.deepEqual(calls, ["stop requested"]);
  await start();
  assert.deepEqual(calls, ["stop requested", "reload", "stop by SIGTERM"]);
});

test("SIGTERM triggers a command's shutdown only once, however often it arrives; only a later Ctrl-C makes the command exit immediately", async (t) => {
  for (const [signals, expected] of [
    [["SIGINT"], ["stop requested", "stop by SIGINT"]],
    [
      ["SIGTERM", "SIGTERM"],
      ["stop requested", "stop by SIGTERM"],
    ],
    [
      ["SIGTERM", "SIGINT"],
      ["stop requested", "exit 130", "stop by SIGTERM"],
    ],
    [
      ["SIGINT", "SIGTERM"],
      ["stop requested", "stop by SIGINT"],
    ],
  ] as const) {
    const { calls, start, giveUp } = starting(t);
    await start();
    await send(...signals);
    giveUp();
    assert.deepEqual(calls.toSorted(), expected.toSorted(), signals.join());
  }
});

test("a command removes its signal handlers when it ends", async (t) => {
  const before = process.listenerCount("SIGTERM");
  starting(t).giveUp();
  assert.equal(process.listenerCount("SIGTERM"), before);
});

const change = { document: { revision: 5 }, events: [{}] } as unknown as Changed;

/** A command on a store that returns these presence records one after another, or an error. */
function command(
  results: readonly (readonly PresenceRecord[] | StoreError)[],
  { isTTY = false, document = storeDocument([]), unread = 0 } = {},
) {
  let written = "";
  const remaining = [...results];
  const access = {
    async presence() {
      const result = (remaining.length > 1 ? remaining.shift() : remaining[0]) ?? [];
      if (result instanceof StoreError) throw result;
      return {
        records: new Map(result.map((presence) => [presence.id, presenceText(presence)])),
        count: result.length + unread,
      };
    },
    read: async () => ({ document, now: start }),
  } as unknown as StoreAccess;
  const stderr = { isTTY, columns: 40, write: (text: string) => (written += text) };
  const io: Io = { stdin: Readable.from([]), stdout: stderr, stderr, environment: {}, exitCode: 0 };
  return { io, keys: { io, access }, written: () => written };
}

const gone = (endedAt: number) => tombstone("t", "revoked", { endedAt });

const behind = [presenceRecord("r", { name: "late\u{202e}", revision: 4 })];
const caughtUp = [presenceRecord("r")];

describe("a command that waits for the replicas", () => {
  test("shows the late replicas on a terminal, on one line that is cleared at the end", async () => {
    const { keys, io, written } = command([behind, behind, caughtUp], { isTTY: true });
    assert.deepEqual((await waitForReplicas(keys, change, 9))?.late, []);
    assert.equal(io.exitCode, 0);
    // On a slow machine, it prints the remaining seconds more than once.
    const lines = written().split("\r\u{1b}[K");
    assert.deepEqual([lines[0], lines[1], lines.at(-1)], ["", "waiting for late\\u{202e} (9 s)", ""]);
    assert.ok(lines.slice(1, -1).every((line) => line.startsWith("waiting for late")));
  });

  test("prints nothing if the output is not a terminal", async () => {
    const { keys, written } = command([behind, caughtUp]);
    await waitForReplicas(keys, change, 9);
    assert.equal(written(), "");
  });

  test("exits with the code for an unknown outcome if the store becomes unavailable after the change", async () => {
    const { keys, io, written } = command([behind, new StoreError("ERR_STORE_UNAVAILABLE", "no route to host")]);
    assert.equal(await waitForReplicas(keys, change, 9), undefined);
    assert.equal(io.exitCode, 3);
    assert.match(
      written(),
      /^jwksd: the change was made, but jwksd cannot read the store .*no route to host \[ERR_STORE_UNAVAILABLE\]\n$/,
    );
  });

  test("ends when every live replica publishes the change or a later change in the same store", async () => {
    const later = storeDocument([], { revision: 6, commits: ["c5", "c6"] });
    const dead = presenceRecord("dead", { revision: 1, at: start - 3_600_000 });
    const rows: [
      name: string,
      presence: PresenceRecord,
      document: StoreDocument | undefined,
      waits: number,
      code: number,
    ][] = [
      ["it publishes the change", presenceRecord("r"), undefined, 120, 0],
      ["it publishes a later one", presenceRecord("r", { revision: 6 }), later, 120, 0],
      ["it is late", presenceRecord("r", { revision: 4 }), undefined, 0.001, 3],
      ["it has just started", presenceRecord("r", { revision: 0, commit: undefined }), undefined, 0.001, 3],
      ["it is late, without waiting", presenceRecord("r", { revision: 4 }), undefined, 0, 0],
      // After an older backup was restored. The command does not wait for these but always reports them.
      ["it is ahead of the store", presenceRecord("r", { revision: 6 }), undefined, 120, 3],
      ["it has another revision of this number", presenceRecord("r", { commit: "other" }), undefined, 120, 3],
      ["it is ahead, without waiting", presenceRecord("r", { revision: 6 }), undefined, 0, 3],
    ];
    const found = await Promise.all(
      rows.map(async ([name, presence, document, waits]) => {
        const { keys, io } = command([[presence, dead]], document && { document });
        const startMs = performance.now();
        const late = (await waitForReplicas(keys, change, waits))?.late.length ?? 0;
        return [name, io.exitCode, late > 0, performance.now() - startMs < 60_000];
      }),
    );
    assert.deepEqual(
      found,
      rows.map(([name, , , , code]) => [name, code, code === 3, true]),
    );
  });

  test("explains why a replica refuses an older backup", async () => {
    const { keys } = command([[presenceRecord("r", { revision: 6 }), presenceRecord("s")]]);
    const outcome = await waitForReplicas(keys, change, 0);
    assert.ok(outcome);
    const [count, why = ""] = catchUpLines(outcome);
    assert.equal(count, "1 of 2 have caught up.");
    assert.match(
      why,
      /^Replica "r".* publishes revision 6, which the store no longer has\. Until this replica is restarted, it refuses to use an older backup/,
    );
  });

  test("describes the first few of many late replicas and counts the rest", async () => {
    for (const [count, last] of [
      [5, /^Replica "r4"/],
      [6, /^1 more is behind; to list them, run jwksd replicas\.$/],
      [475, /^470 more are behind; to list them, run jwksd replicas\.$/],
    ] as const) {
      const late = Array.from({ length: count }, (_, index) => presenceRecord(`r${index}`, { revision: 4 }));
      const { keys } = command([late]);
      const lines = catchUpLines((await waitForReplicas(keys, change, 0.001)) ?? assert.fail());
      assert.deepEqual([lines[0], lines.length], [`0 of ${count} have caught up.`, Math.min(count, 6) + 1]);
      assert.match(lines.at(-1) ?? "", last);
    }
  });

  test("reports how many presence records were not read", async () => {
    const { keys } = command([caughtUp], { unread: 5_000 });
    const outcome = await waitForReplicas(keys, change, 9);
    assert.deepEqual(catchUpLines(outcome ?? assert.fail()), [
      "1 of 1 has caught up.",
      "The store has 5,000 more presence records that were not read.",
    ]);
  });

  test("lists the served targets that have not yet received a step or a revocation", async () => {
    const target = { name: "s3://bucket", revision: 3, at: start };
    const next = { ...record("b", "announced", { announcedAt: start }), stateRevision: 5 };
    const rows: [name: string, document: StoreDocument, lacks: boolean][] = [
      ["a step", storeDocument([next], { targets: [target] }), true],
      ["a step that it has", storeDocument([next], { targets: [{ ...target, revision: 5 }] }), false],
      [
        "a step, but the target is not served yet",
        storeDocument([next], { targets: [{ ...target, revision: 0 }] }),
        false,
      ],
      ["a revocation", storeDocument([gone(start + second)], { targets: [target] }), true],
      ["a revocation that it has", storeDocument([gone(start - second)], { targets: [target] }), false],
    ];
    for (const [name, document, lacks] of rows) {
      const { keys, io } = command([caughtUp], { document });
      const outcome = await waitForReplicas(keys, change, 0.001);
      assert.deepEqual([io.exitCode, catchUpLines(outcome ?? assert.fail()).length], lacks ? [3, 2] : [0, 1], name);
    }
  });
});
