import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import type { Register } from "../../src/rotation/store/register.ts";
import { type Faults, type RegisterUnderTest, defineRegisterTests } from "../../src/testing/register-tests.ts";
import { type Cut, type Cuttable, cuttable } from "./cuttable.ts";
import type { Daemon } from "./daemon.ts";
import { sample } from "./samples.ts";
import { isSoak } from "./soak.ts";

export interface Networked extends RegisterUnderTest {
  readonly network: Cuttable;
}

/** Functions that close a caller's clients. */
type Ends = (() => unknown)[];

export type Open = (
  port: number,
  options: { issuer: string; timeoutMs: number },
  ends: Ends,
) => Register | Promise<Register>;

/**
 * Returns the function for `defineRegisterTests` that opens registers, with unique issuers, through a network that can be cut. All tests share the
 * network, because the redis package creates a class with all of its commands for each new address.
 */
export function throughNetwork(port: number, open: Open): () => Promise<Networked> {
  let shared: Promise<Cuttable> | undefined;
  after(async () => (await shared)?.close());
  return async () => {
    const network = await (shared ??= cuttable(port));
    const run = randomUUID();
    const ends: Ends = [];
    return {
      network,
      handle: async (issuer) => open(network.port, { issuer: `${issuer}#${run}`, timeoutMs: 3_000 }, ends),
      async end() {
        for (const end of ends) await end();
      },
    };
  };
}

const cuts: Readonly<Record<string, Cut>> = {
  "the connection breaks before the server receives it": "before the server receives it",
  "the connection breaks before the response": "after the server has responded",
  "the network falls silent": "silent from then on",
};

/** Returns faults for `defineRegisterTests` that occur when a client sends a string that only writes contain. */
export const networkFaults = (marker: string): Faults<Networked> =>
  Object.fromEntries(
    Object.entries(cuts).map(([name, cut]) => [
      name,
      async ({ network }) => {
        network.cutAt(marker, cut);
        return async () => network.restore();
      },
    ]),
  );

/** Returns faults of a server for `defineRegisterTests`, in the middle of a write. */
export const serverFaults = (marker: string, server: Daemon): Faults<Networked> => ({
  "the server dies": async ({ network }) => {
    network.cutAt(marker, "after the server has responded", () => void server.kill());
    return () => server.start();
  },
  "the server is suspended for a while": async ({ network }) => {
    network.cutAt(marker, "after the server has responded", () => server.pause());
    return async () => server.resume();
  },
});

/** One way to a store: the arguments of `defineRegisterTests`. */
export type Way<Under extends RegisterUnderTest> = [name: string, open: () => Promise<Under>, faults?: Faults<Under>];

/** Runs `defineRegisterTests` for the first way to a store; in `npm test`, the other ways get only {@link checkShortly}. */
export function checkWays<Under extends RegisterUnderTest>([first, ...others]: readonly Way<Under>[]): void {
  if (first !== undefined) {
    defineRegisterTests(...first);
    checkTooLarge(first[0], first[1]);
  }
  for (const way of others) {
    if (isSoak) defineRegisterTests(...way);
    else test(`a register, briefly: ${way[0]}`, () => checkShortly(way[1]));
  }
}

/** Tests that a document larger than jwksd writes, which another program may have written, is not read. */
export const checkTooLarge = (name: string, open: () => Promise<RegisterUnderTest>): void =>
  void test(`a document that is too large to be read is left out: ${name}`, async () => {
    const under = await open();
    const register = await under.handle("https://op.example");
    try {
      const { maxBytes = Infinity } = register;
      for (const [bytes, isRead] of [
        [maxBytes, true],
        [maxBytes + 1, false],
      ] as const) {
        const before = await register.read("");
        assert.equal(await register.write("a".repeat(bytes), before.version), true);
        const { version, text } = await register.read();
        assert.deepEqual([typeof version, text?.length], ["string", isRead ? bytes : undefined]);
      }
    } finally {
      await register.close?.();
      await under.end?.();
    }
  });

/** Tests that the store of a documentation sample can be read. @param changes replacements in the sample, once the server runs */
export const checkSample = (file: string, changes: () => Readonly<Record<string, string>>): void =>
  void test(`the store of ${file}`, async (t) => {
    const { store } = (await import(await sample(t, file, changes()))) as { store: Register };
    t.after(() => store.close?.());
    assert.equal((await store.read()).version, undefined);
  });

/** Runs a few calls of each kind, through two handles. */
export async function checkShortly(open: () => Promise<RegisterUnderTest>): Promise<void> {
  const under = await open();
  const [one, other] = [await under.handle("https://op.example"), await under.handle("https://op.example")];
  const stopped = new AbortController();
  const { promise: called, resolve } = Promise.withResolvers<void>();
  if (one.watch === undefined) resolve();
  one.watch?.(resolve, { signal: stopped.signal });
  try {
    assert.equal((await one.read()).version, undefined);
    const texts = ["🔑", "'\\\n", "é", "\u2028"];
    const writes = texts.map((text, index) => (index % 2 === 0 ? one : other).write(text, undefined));
    const outcomes = await Promise.all(writes);
    assert.equal(outcomes.filter(Boolean).length, 1);
    const { version, text } = await other.read(undefined, { confirmed: true });
    assert.equal(text, texts[outcomes.indexOf(true)]);
    assert.equal((await one.read(version)).text, undefined, "a known document is left out");
    assert.equal(await one.write("late", "unknown"), false);
    assert.equal(await other.write("next", version), true);
    assert.equal((await one.read(version)).text, "next");
    await called;
    await one.presence?.put("id", "record");
    const records = new Map([["id", "record"]]);
    assert.deepEqual(await other.presence?.list(9), one.presence && { records, count: 1 });
    await other.presence?.drop(["id"]);
    assert.equal((await one.presence?.list(9))?.count ?? 0, 0);
  } finally {
    stopped.abort();
    for (const register of [one, other]) await register.close?.();
    await under.end?.();
  }
}
