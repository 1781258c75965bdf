import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { describe, mock, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { inspect } from "node:util";
import { JwksdError, invalidOption } from "../base/errors.ts";
import { isDate } from "../base/format.ts";
import type { DueIssuer, ListedIssuer, PresenceStore, Register, CallOptions } from "../rotation/store/register.ts";
import { checkCall } from "./suite-arguments.ts";

/** An empty store to test. */
export interface RegisterUnderTest {
  /**
   * Opens another handle on an issuer's register, as another process would. For a register without handles, returns the
   * register itself.
   */
  readonly handle: (issuer: string) => Register | Promise<Register>;
  /** Removes everything, after all handles have been closed. */
  readonly end?: () => Promise<void>;
}

/**
 * Faults between a process and a register, keyed by name. Each function starts a fault and returns a function that ends
 * it.
 */
export type Faults<Under extends RegisterUnderTest> = Readonly<
  Record<string, (under: Under) => Promise<() => Promise<void>>>
>;

type Handle = (issuer?: string) => Promise<Register>;

/**
 * Defines the tests that every register must pass, using `node:test`. Calls `open` for each test.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @see Register
 */
export function defineRegisterTests<Under extends RegisterUnderTest>(
  name: string,
  open: () => Promise<Under>,
  faults: Faults<Under> = {},
): void {
  checkCall("defineRegisterTests", name, open);
  const check = (title: string, body: (register: Register, handle: Handle, under: Under) => Promise<void>): void =>
    void test(title, async () => {
      const under = await open();
      if (typeof under?.handle !== "function")
        throw invalidOption("the function that opens a register must return { handle }");
      const handles: Register[] = [];
      const handle: Handle = async (issuer = "https://op.example") => {
        const opened = await under.handle(issuer);
        handles.push(opened);
        return opened;
      };
      try {
        await body(await handle(), handle, under);
      } finally {
        for (const opened of handles) await opened.close?.();
        await under.end?.();
      }
    });

  describe(`a register: ${name}`, () => {
    checkText(check);
    checkRaces(check);
    checkPresence(check);
    checkDue(check);
    checkList(check);
    checkCalls(check);
    for (const [fault, begin] of Object.entries(faults)) {
      check(`reports the true outcome of a write during a fault: ${fault}`, async (register, handle, under) => {
        const version = await written(register, "before");
        const other = await handle();
        const end = await begin(under);
        const outcome = await register.write("during", version).catch((error: unknown) => error);
        await end();
        // The conditional write settles an unknown outcome: after it, the write that was sent during the fault can no
        // longer succeed.
        await retryUntil(() => other.write("after", version));
        const text = await retryUntil(async () => (await other.read()).text);
        if (typeof outcome === "boolean") assert.equal(text, "during", `the write returned ${outcome}`);
        else if (outcome instanceof JwksdError) assert.deepEqual([outcome.name, text], ["StoreError", "after"]);
        else assert.ok(text === "during" || text === "after");
        assert.equal((await retryUntil(() => register.read())).text, text);
      });
    }
  });
}

type Check = (title: string, body: (register: Register, handle: Handle) => Promise<void>) => void;

/** Replaces the stored document. @returns the new version */
async function written(register: Register, text: string): Promise<string> {
  assert.equal(await register.write(text, (await register.read()).version), true);
  const { version } = await register.read();
  assert.equal(typeof version, "string");
  return version as string;
}

/** Returns the result of a read, leaving out the time. */
async function readState(register: Register, known?: string): Promise<object> {
  const { now: _, ...rest } = await register.read(known);
  return rest;
}

const presenceOf = async ({ presence }: Register): Promise<ReadonlyMap<string, string>> =>
  (await presence?.list(500))?.records ?? new Map();

function checkText(check: Check): void {
  check("distinguishes an empty document from no document", async (register, handle) => {
    assert.deepEqual(await readState(register), {});
    assert.deepEqual(await readState(register, "unknown"), {});
    assert.equal(await register.write("", "unknown"), false);
    assert.equal(await register.write("", undefined), true);
    const { version, text } = await register.read();
    assert.deepEqual([typeof version, text], ["string", ""]);
    assert.equal(await register.write("x", undefined), false);
    assert.deepEqual(await readState(await handle()), { version, text: "" });
  });

  check("omits the document from a read when the caller passes the current version", async (register, handle) => {
    const version = await written(register, "one");
    for (const reader of [register, await handle()]) {
      assert.deepEqual(await readState(reader, version), { version });
      assert.deepEqual(await readState(reader, "unknown"), { version, text: "one" });
      assert.deepEqual(await reader.read(undefined, { confirmed: true }).then(({ text }) => text), "one");
    }
  });

  check(
    "gives every write a version that was never used before, even for the same document",
    async (register, handle) => {
      const versions = [await written(await handle("https://other.example"), "same")];
      for (let count = 0; count < 10; count += 1) versions.push(await written(register, "same"));
      assert.equal(new Set(versions).size, versions.length);
      // A counter would repeat versions after a backup is restored.
      assert.notEqual(versions[0], versions[1]);
    },
  );

  check("returns a document as it was written", async (register, handle) => {
    const odd = `'"\\\n\r\n\t %_$1 é e\u0301 \u2028 🔑`;
    const bytes = Math.min(2 ** 20, register.maxBytes ?? Infinity);
    const samples = [odd, "🔑".repeat(bytes / 4), "a".repeat(bytes), ` ${odd} `];
    const other = await handle();
    for (const text of samples) {
      await written(register, text);
      assert.ok((await other.read()).text === text, `${text.length} characters`);
    }
  });

  check("keeps separate registers for issuers that differ only in case, a space or a slash", async (_, handle) => {
    const issuers = ["https://a.example/x", "https://a.example/X", "https://a.example/x ", "https://a.example/x/"];
    for (const issuer of issuers) {
      const register = await handle(issuer);
      assert.deepEqual([await readState(register), await presenceOf(register)], [{}, new Map()]);
      await written(register, issuer);
      await register.presence?.put("id", issuer);
    }
    for (const issuer of issuers) assert.equal((await (await handle(issuer)).read()).text, issuer);
  });

  check("has a clock that advances and is not the caller's", async (register) => {
    const { now } = await register.read();
    if (now === undefined) return;
    assert.ok(isDate(now), `"now" must be a number of epoch milliseconds, not ${inspect(now)}`);
    await retryUntil(
      () => register.read(),
      (reading) => (reading.now ?? 0) > now,
    );
    mock.timers.enable({ apis: ["Date"], now: 0 });
    try {
      assert.ok(((await register.read()).now ?? 0) > now);
    } finally {
      mock.timers.reset();
    }
  });
}

function checkRaces(check: Check): void {
  check(
    "when 100 writers race on two handles, exactly one succeeds, and its document is stored",
    async (register, handle) => {
      const handles = [register, await handle()] as const;
      for (let round = 0; round < 5; round += 1) {
        const { version } = await register.read();
        const writes = Array.from({ length: 100 }, (_, index) =>
          handles[index % 2 === 0 ? 0 : 1].write(`${round} ${index}`, version),
        );
        const outcomes = await Promise.all(writes);
        assert.equal(outcomes.filter(Boolean).length, 1, `round ${round}`);
        for (const reader of handles) assert.equal((await reader.read()).text, `${round} ${outcomes.indexOf(true)}`);
      }
    },
  );

  check("a repeated or late write changes nothing", async (register, handle) => {
    const first = await written(register, "1");
    const other = await handle();
    assert.equal(await other.write("2", first), true);
    const after = await readState(other);
    for (const writer of [register, other]) {
      assert.equal(await writer.write("2", first), false);
      assert.equal(await writer.write("late", first), false);
      assert.deepEqual(await readState(writer), after);
    }
    await written(register, "3");
    assert.equal(await other.write("late", first), false);
    assert.equal((await other.read()).text, "3");
  });
}

function checkPresence(check: Check): void {
  check("writes, replaces and drops presence records, which are not part of the document", async (register, handle) => {
    const { presence } = register;
    if (presence === undefined) return;
    const other = (await handle()).presence as PresenceStore;
    const long = "🔑".repeat(2_048);
    await presence.put("a", "1");
    await presence.put("A", long);
    await other.put("a ", "");
    assert.deepEqual(await readState(register), {});
    const version = await written(register, "text");
    await other.put("a", "2");
    const records = new Map([
      ["a", "2"],
      ["A", long],
      ["a ", ""],
    ]);
    for (const handle of [presence, other]) {
      assert.deepEqual(await handle.list(3), { records, count: 3 });
    }
    await presence.drop(["a", "unknown"]);
    assert.deepEqual([...(await other.list(3)).records.keys()].toSorted(), ["A", "a "]);
    assert.deepEqual(await readState(register, version), { version });
  });

  check("lists presence records up to a limit on their number and length, and counts them all", async (register) => {
    const { presence } = register;
    if (presence === undefined) return;
    const ids = Array.from({ length: 150 }, () => crypto.randomUUID());
    await Promise.all([...ids, "one more"].map((id) => presence.put(id, id)));
    // A register may reject a record this long.
    await presence.put("long", "a".repeat(60_000)).catch(() => {});
    const { records, count } = await presence.list(152);
    const kept = new Map([...records].filter(([id, record]) => id !== "long" || record.length > 0));
    assert.deepEqual(kept, new Map([...ids, "one more"].map((id) => [id, id])));
    for (const limit of [1, 100]) {
      const some = await presence.list(limit);
      assert.deepEqual([some.records.size, some.count], [limit, count]);
    }
    await presence.drop(ids);
    const left = await presence.list(152);
    assert.deepEqual([left.records.get("one more"), left.count], ["one more", count - ids.length]);
  });
}

function checkDue(check: Check): void {
  check(
    "lists issuers that have a step due, page by page, with the due time from the latest write",
    async (register, handle) => {
      if (register.due === undefined) return;
      const id = crypto.randomUUID();
      const dues = [3, 1, 1, 2, Date.now() + 3_600_000, undefined];
      const written = await Promise.all(
        dues.map(async (due, index) => {
          const one = await handle(`https://${index}.${id}.example`);
          assert.equal(await one.write("text", undefined, { due }), true);
          return one;
        }),
      );
      async function listed(limit: number): Promise<string> {
        const found: DueIssuer[] = [];
        for (;;) {
          const page = (await register.due?.(limit, found.at(-1))) ?? [];
          assert.ok(page.length <= limit);
          if (page.length === 0) break;
          found.push(...page);
        }
        const own = found.filter(({ issuer }) => issuer.includes(id));
        return own.map(({ issuer, due }) => `${due}:${/\d+/.exec(issuer)?.[0]}`).join(" ");
      }
      for (const limit of [1, 2, 1_000]) assert.match(await listed(limit), /^(1:1 1:2|1:2 1:1) 2:3 3:0$/);
      for (const [index, due] of [undefined, 4, undefined, Date.now() + 3_600_000, 1].entries()) {
        const one = written[index] as Register;
        assert.equal(await one.write("later", (await one.read()).version, { due }), true);
      }
      assert.equal(await listed(1_000), "1:4 4:1");
    },
  );
}

function checkList(check: Check): void {
  check("lists all issuers page by page, each with its register", async (register, handle) => {
    if (register.list === undefined) return;
    const id = crypto.randomUUID();
    for (let index = 0; index < 5; index += 1)
      assert.equal(await (await handle(`https://${index}.${id}.example`)).write(`${index}`, undefined), true);
    for (const limit of [1, 2, 1_000]) {
      const found: ListedIssuer[] = [];
      for (;;) {
        const page = await register.list(limit, found.at(-1));
        assert.ok(page.length <= limit);
        if (page.length === 0) break;
        found.push(...page);
      }
      const own = found.map(({ issuer }) => issuer).filter((issuer) => issuer.includes(id));
      const indices = own.map((issuer) => /\d+/.exec(issuer)?.[0]);
      assert.deepEqual([indices.length, new Set(indices)], [5, new Set(["0", "1", "2", "3", "4"])]);
      for (const [at, issuer] of own.entries()) {
        const other = register.forIssuer?.(issuer);
        if (other !== undefined) assert.equal((await other.read()).text, indices[at]);
      }
    }
  });
}

/** Calls every method with these options. */
const calls = (register: Register, call?: CallOptions): Promise<unknown>[] => [
  register.read(undefined, call),
  register.read(undefined, { ...call, confirmed: true }),
  register.write("called", undefined, call),
  ...(register.due === undefined ? [] : [register.due(1, undefined, call)]),
  ...(register.list === undefined ? [] : [register.list(1, undefined, call)]),
  ...(register.presence === undefined
    ? []
    : [
        register.presence.put("called", "", call),
        register.presence.list(1, call),
        register.presence.drop(["called"], call),
      ]),
];

function checkCalls(check: Check): void {
  check(
    "when a signal aborts, rejects the call with the signal's reason; does not start a call whose signal has already aborted",
    async (register) => {
      const reason = new Error("stopped");
      const isReason = (outcome: PromiseSettledResult<unknown>): boolean =>
        outcome.status === "rejected" && outcome.reason === reason;
      const stopped = await Promise.allSettled(calls(register, { signal: AbortSignal.abort(reason) }));
      assert.ok(stopped.every(isReason), "before");
      assert.deepEqual([await readState(register), await presenceOf(register)], [{}, new Map()]);
      const controller = new AbortController();
      const outcomes = Promise.allSettled(calls(register, { signal: controller.signal }));
      controller.abort(reason);
      for (const outcome of await outcomes) assert.ok(outcome.status === "fulfilled" || isReason(outcome));
    },
  );

  check("calls a watcher back after writes by any handle, until the signal aborts", async (register, handle) => {
    if (register.watch === undefined) return;
    const [stopped, remaining] = [watching(register), watching(register)];
    for (const writer of [register, await handle(), register]) {
      const version = await written(writer, "text");
      for (const watched of [stopped, remaining]) await watched.sees(version);
    }
    stopped.stop();
    const { calls } = stopped;
    register.watch(() => assert.fail("called back"), { signal: AbortSignal.abort() });
    await remaining.sees(await written(await handle(), "text"));
    assert.equal(stopped.calls, calls);
    remaining.stop();
  });

  check(
    "allows a closed handle to be closed again, but rejects every other call and does not call listeners",
    async (_, handle) => {
      const [closed, other] = [await handle(), await handle()];
      await written(closed, "text");
      let isClosed = closed.close === undefined;
      closed.watch?.(() => assert.ok(!isClosed), { signal: new AbortController().signal });
      await closed.close?.();
      if (isClosed) return;
      isClosed = true;
      await closed.close?.();
      for (const outcome of await Promise.allSettled(calls(closed))) {
        assert.ok(outcome.status === "rejected" && outcome.reason instanceof JwksdError);
        const { name, code, retryable } = outcome.reason;
        assert.deepEqual([name, code, retryable], ["StoreError", "ERR_STORE_UNAVAILABLE", true]);
      }
      closed.watch?.(() => assert.fail("called back"), { signal: new AbortController().signal });
      if (closed === other || other.watch === undefined) return;
      const watched = watching(other);
      await watched.sees(await written(other, "more"));
      watched.stop();
    },
  );
}

/** Time limit, long enough for a busy machine. */
const longMs = 10_000;

/** Repeats a call until it returns an acceptable result. */
async function retryUntil<T>(call: () => Promise<T>, isEnough: (result: T) => boolean = () => true): Promise<T> {
  const deadlineMs = performance.now() + longMs;
  for (;;) {
    const result = await call().catch((error: unknown) => {
      if (performance.now() > deadlineMs) throw error;
    });
    if (result !== undefined && isEnough(result)) return result;
    assert.ok(performance.now() < deadlineMs, "the call did not return an acceptable result in time");
    await pause(20);
  }
}

interface Watching {
  readonly calls: number;
  /** Resolves once this version has been returned by a read that follows a callback. */
  sees(version: string): Promise<void>;
  stop(): void;
}

function watching(register: Register): Watching {
  const controller = new AbortController();
  const changes = new EventEmitter();
  const versions = new Set<string | undefined>();
  let calls = 0;
  const onChange = async (): Promise<void> => {
    calls += 1;
    versions.add((await register.read()).version);
    changes.emit("change");
  };
  register.watch?.(() => void onChange(), { signal: controller.signal });
  return {
    get calls() {
      return calls;
    },
    async sees(version) {
      const late = new AbortController();
      // Also keeps the process alive, because watching a register need not.
      const timer = setTimeout(() => late.abort(new Error("no callback came in time")), longMs);
      while (!versions.has(version)) await once(changes, "change", { signal: late.signal });
      clearTimeout(timer);
    },
    stop: () => controller.abort(),
  };
}
