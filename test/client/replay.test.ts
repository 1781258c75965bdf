import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import fc from "fast-check";
import { type ClientKeyMetadata, type SetIfAbsent, type TokenError, memoryReplayStore } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { runSample, sample } from "../support/samples.ts";
import { temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { compact, signature, verdict } from "../token/compact.ts";
import { client, clientId, issuer, jwks, kinds, tokenOf, verifier } from "./client.ts";
import { confidentialDocument, documentUrl } from "./documented.ts";

const second = 1_000;

for (const kind of kinds) {
  describe(`${kind}: a jti can be used only once (RFC 7523 section 3, item 7)`, () => {
    test("the second use is refused, whatever else differs", async () => {
      const check = verifier()[kind];
      assert.equal(await verdict(check(tokenOf(kind, { jti: "x" }), client)), "accepted");
      for (const token of [
        tokenOf(kind, { jti: "x" }),
        tokenOf(kind, { jti: "x", nonce: "y" }, { typ: "JWT" }, "EdDSA"),
      ])
        await assert.rejects(check(token, client), {
          name: "TokenError",
          code: "ERR_TOKEN_REPLAYED",
          retryable: false,
        });
      assert.equal(await verdict(check(tokenOf(kind, { jti: "X" }), client)), "accepted");
    });

    test("different clients' jtis do not collide, whatever the client ids contain", async () => {
      const check = verifier()[kind];
      const names = [clientId, "client-2", "a", "ab", "a/b", 'a","b', "a.b", ""].flatMap((id) =>
        ["x", "c", "bc", "b/c", 'b","c', "b.c"].map((jti) => [`c${id}`, jti] as const),
      );
      for (const expect of ["accepted", "ERR_TOKEN_REPLAYED"]) {
        for (const [id, jti] of names) {
          const own = kind === "clientAssertion" ? { sub: id } : { client_id: id };
          const token = tokenOf(kind, { iss: id, jti, ...own });
          assert.equal(await verdict(check(token, { clientId: id, jwks })), expect, `${id} ${jti}`);
        }
      }
    });

    test("only one of several concurrent uses is accepted", async () => {
      const check = verifier()[kind];
      const token = tokenOf(kind);
      const verdicts = await Promise.all(Array.from({ length: 50 }, () => verdict(check(token, client))));
      assert.deepEqual(verdicts.toSorted(), [...Array<string>(49).fill("ERR_TOKEN_REPLAYED"), "accepted"]);
    });

    test("an invalid token does not use up its jti", async () => {
      const check = verifier()[kind];
      const jti = "x";
      const spoiled: [name: string, token: string, client?: ClientKeyMetadata][] = [
        ["signature", compact({ alg: "ES256", kid: "ES256" }, { jti }, signature("ES256", ecKey("other")))],
        ["aud", tokenOf(kind, { jti, aud: "https://other.example" })],
        ["iss", tokenOf(kind, { jti, iss: "client-2" })],
        ["sub or client_id", tokenOf(kind, { jti, sub: kind === "clientAssertion" ? "x" : clientId, client_id: "x" })],
        ["exp in the past", tokenOf(kind, { jti, exp: 1 })],
        ["exp far in the future", tokenOf(kind, { jti, exp: 1e12 })],
        ["crit", tokenOf(kind, { jti }, { crit: ["x"], x: 1 })],
        ["kid", tokenOf(kind, { jti }, { kid: "x" })],
        ...(kind === "requestObject" ? [["request", tokenOf(kind, { jti, request: "x" })] as [string, string]] : []),
      ];
      for (const [name, token] of spoiled)
        assert.match(await verdict(check(token, client)), /^ERR_TOKEN_(?!REPLAYED)/, name);
      assert.equal(await verdict(check(tokenOf(kind, { jti }), client)), "accepted");
    });
  });
}

test("a jti used in an assertion cannot be reused in a request object", async () => {
  const { clientAssertion, requestObject } = verifier();
  assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion", { jti: "x" }), client)), "accepted");
  assert.equal(await verdict(requestObject(tokenOf("requestObject", { jti: "x" }), client)), "ERR_TOKEN_REPLAYED");
});

describe("around a token's expiry, the verifier", () => {
  const rows: [name: string, expAfter: number, clockToleranceSeconds: number][] = [
    ["a whole second", 10, 0],
    ["a fraction of a second", 10.5, 0],
    ["a small fraction", 10.001, 0],
    ["a tolerance", 10, 5],
    ["a fractional tolerance", 10, 0.5],
    ["fractions of both", 10.25, 0.5],
  ];
  for (const [name, expAfter, clockToleranceSeconds] of rows) {
    test(`accepts the token only once, no matter when it is reused, and frees its jti afterwards: ${name}`, async () => {
      const clock = simulatedClock();
      const { clientAssertion } = verifier({ clock, clockToleranceSeconds });
      const startMs = clock.now();
      const token = tokenOf("clientAssertion", { jti: "x", exp: startMs / second + expAfter });
      const verdicts: string[] = [];
      while (verdicts.at(-1) !== "ERR_TOKEN_EXPIRED") {
        verdicts.push(await verdict(clientAssertion(token, client)));
        clock.setBy(250);
      }
      const replays = verdicts.length - 2;
      assert.ok(replays >= 4 * (expAfter - 1));
      assert.deepEqual(verdicts, [
        "accepted",
        ...Array<string>(replays).fill("ERR_TOKEN_REPLAYED"),
        "ERR_TOKEN_EXPIRED",
      ]);
      const renewed = tokenOf("clientAssertion", { jti: "x", exp: clock.now() / second + 10 });
      assert.equal(await verdict(clientAssertion(renewed, client)), "accepted");
    });
  }

  test("rejects a token that expires while its keys are being fetched", async () => {
    const clock = simulatedClock();
    const waiting: (() => void)[] = [];
    const fetch = async (): Promise<Response> => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return Response.json(jwks);
    };
    const { clientAssertion } = verifier({ clock, fetch });
    const remote: ClientKeyMetadata = { clientId, jwksUri: "https://client.example/jwks" };
    const token = tokenOf("clientAssertion", { exp: clock.now() / second + 2 });
    const verdicts = [token, token].map((token) => verdict(clientAssertion(token, remote)));
    await clock.advance(3 * second);
    waiting.forEach((resolve) => resolve());
    assert.ok(!(await Promise.all(verdicts)).includes("accepted"));
  });
});

/** Returns a store for several replicas: calls are asynchronous, but the check and the write are atomic. */
function sharedStore(): { readonly replay: SetIfAbsent; readonly uses: Map<string, number> } {
  const uses = new Map<string, number>();
  return {
    uses,
    async replay(key, expiresAt) {
      await new Promise(setImmediate);
      const isNew = !uses.has(key);
      if (isNew) uses.set(key, expiresAt);
      await new Promise(setImmediate);
      return isNew;
    },
  };
}

/** Starts two processes that verify assertions of a client with a metadata document; returns a function that sends one to both at once. */
async function processes(t: TestContext, isShared: boolean) {
  const folder = await temporaryFolder(t);
  const store = await sample(t, "examples/docs/replay.mts", {
    '"replay.db"': JSON.stringify(join(folder, "replay.db")),
  });
  const program = join(dirname(store), "process.mts");
  const pinned = JSON.stringify({ ...confidentialDocument, jwks_uri: undefined, jwks });
  await writeFile(
    program,
    `import { createClientDocuments, createClientVerifier } from "jwksd";
    const { replay } = ${isShared ? 'await import("./replay.mts")' : "{}"};
    const documents = createClientDocuments({ issuer: "${issuer}", fetch, pinned: [${JSON.stringify(pinned)}] });
    const clients = createClientVerifier({ issuer: "${issuer}", documents, replay });
    process.on("message", (tokens) => {
      const checks = tokens.map((token) => clients.clientAssertion(token).then(() => "accepted", ({ code }) => code));
      Promise.all(checks).then((verdicts) => process.send(verdicts));
    });
    process.send("ready");`,
  );
  const both = [runSample(t, program), runSample(t, program)] as const;
  for (const { next } of both) assert.equal(await next(), "ready");
  return async (tokens: readonly string[]): Promise<readonly [string, string][]> => {
    for (const { process } of both) process.send([...tokens]);
    const [one, other] = (await Promise.all(both.map(({ next }) => next()))) as [string[], string[]];
    return tokens.map((_, index) => [one[index] ?? "", other[index] ?? ""]);
  };
}

/** Returns assertions of the client. */
const assertions = (): string[] => {
  const claims = { iss: documentUrl, sub: documentUrl, exp: Date.now() / second + 60 };
  return Array.from({ length: 100 }, () => tokenOf("clientAssertion", claims));
};

describe("two processes", () => {
  test("with a shared store accept an assertion only once between them, even if both receive it at the same time", async (t) => {
    const send = await processes(t, true);
    for (const verdicts of await send(assertions()))
      assert.deepEqual(verdicts.toSorted(), ["ERR_TOKEN_REPLAYED", "accepted"]);
  });

  test("without a shared store each accept an assertion once", async (t) => {
    const send = await processes(t, false);
    const sent = assertions();
    for (const verdicts of await send(sent)) assert.deepEqual(verdicts, ["accepted", "accepted"]);
    for (const verdicts of await send(sent)) assert.deepEqual(verdicts, ["ERR_TOKEN_REPLAYED", "ERR_TOKEN_REPLAYED"]);
  });
});

describe("a shared store", () => {
  test("accepts exactly one of several concurrent uses across all replicas", async () => {
    const { replay, uses } = sharedStore();
    const replicas = Array.from({ length: 5 }, () => verifier({ replay }));
    const token = tokenOf("clientAssertion");
    const verdicts = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        verdict(replicas[index % 5]?.clientAssertion(token, client) ?? Promise.reject(new Error())),
      ),
    );
    assert.deepEqual(verdicts.toSorted(), [...Array<string>(49).fill("ERR_TOKEN_REPLAYED"), "accepted"]);
    assert.equal(uses.size, 1);
  });

  test("receives a short key for each token and the time at which the token expires", async () => {
    const clock = simulatedClock();
    clock.setBy(-(clock.now() % second));
    const { replay, uses } = sharedStore();
    const exp = clock.now() / second + 60.25;
    const jti = "secret-".repeat(1_000);
    const { clientAssertion } = verifier({ clock, replay, clockToleranceSeconds: 5 });
    await clientAssertion(tokenOf("clientAssertion", { jti, exp }), client);
    const [[key = "", expiresAt] = []] = uses;
    assert.match(key, /^[\w-]{43}$/);
    // `verify` refuses the token from the next whole second on.
    assert.equal(expiresAt, clock.now() + 66 * second);
  });

  test("is not called for a token without a jti", async () => {
    const clients = verifier({ replay: () => assert.fail("the store was called") });
    await clients.requestObject(tokenOf("requestObject", { jti: undefined }), client);
  });

  test("that forgets entries too early does not make an expired token valid", async () => {
    const clock = simulatedClock();
    const replay: SetIfAbsent = async () => {
      clock.setBy(60 * second);
      return true;
    };
    const token = tokenOf("clientAssertion", { exp: clock.now() / second + 60 });
    assert.equal(await verdict(verifier({ clock, replay }).clientAssertion(token, client)), "ERR_TOKEN_EXPIRED");
  });

  test("that fails causes all tokens to be rejected", async () => {
    const down = new Error("no connection");
    const failing = [
      () => Promise.reject(down),
      () => {
        throw down;
      },
    ];
    for (const replay of failing) {
      const verifying = verifier({ replay }).clientAssertion(tokenOf("clientAssertion"), client);
      await assert.rejects(verifying, (error) => error === down);
    }
  });
});

describe("the in-memory store", () => {
  const later = 60 * second;
  /** Uses new tokens of a client, with the same lifetime, until one is refused. */
  function use(store: SetIfAbsent, clientId: string, count: number, expiresAt: number): number {
    for (let used = 0; used < count; used += 1) {
      try {
        assert.equal(store(`new ${(keys += 1)}`, expiresAt, clientId), true);
      } catch (error) {
        assert.equal((error as TokenError).code, "ERR_REPLAY_FULL");
        return used;
      }
    }
    return count;
  }
  let keys = 0;

  test("remembers a busy client's latest tokens and still accepts new ones", async () => {
    const clock = simulatedClock();
    const { clientAssertion } = verifier({ clock, replay: memoryReplayStore({ maxEntries: 4, clock }) });
    const start = clock.now() / second;
    const token = (jti: number): string => tokenOf("clientAssertion", { jti: `${jti}`, exp: start + 10 + jti });
    for (let jti = 0; jti < 20; jti += 1) assert.equal(await verdict(clientAssertion(token(jti), client)), "accepted");
    for (const jti of [18, 19]) assert.equal(await verdict(clientAssertion(token(jti), client)), "ERR_TOKEN_REPLAYED");
    await assert.rejects(clientAssertion(token(3), client), {
      name: "TokenError",
      code: "ERR_REPLAY_FULL",
      retryable: true,
    });
    assert.equal(await verdict(clientAssertion(token(20), client)), "accepted");
  });

  test("when full, evicts the soonest-expiring tokens of the clients with the most tokens", () => {
    const clock = simulatedClock();
    const store = memoryReplayStore({ maxEntries: 12, clock });
    const use = (clientId: string, seconds: number): unknown => {
      try {
        return store(`${clientId} ${seconds}`, clock.now() + seconds * second, clientId);
      } catch (error) {
        return (error as TokenError).code;
      }
    };
    const busy = [50, 10, 70, 20, 40, 30, 80, 60];
    const quiet = [4, 2, 3, 1];
    for (const seconds of busy) assert.equal(use("busy", seconds), true);
    for (const seconds of quiet) assert.equal(use("quiet", seconds), true);
    assert.equal(use("new", 1), true);
    assert.deepEqual(
      busy.toSorted((one, other) => one - other).map((seconds) => use("busy", seconds)),
      [...Array.from({ length: 3 }, () => "ERR_REPLAY_FULL"), false, false, false, false, false],
    );
    for (const seconds of quiet) assert.equal(use("quiet", seconds), false);
    assert.deepEqual([use("busy", 29), use("busy", 31)], ["ERR_REPLAY_FULL", true]);
  });

  test("by default, remembers 100,000 tokens and uses the machine's clock", () => {
    const store = memoryReplayStore();
    const expiresAt = Date.now() + later;
    for (let index = 0; index < 100_000; index += 1) assert.equal(store(`${index}`, expiresAt, "a"), true);
    for (const key of ["0", "99999"]) assert.equal(store(key, expiresAt, "a"), false);
    // One more token makes the store forget tokens that expire no later, so it could be one of them.
    assert.equal(use(store, "a", 1, expiresAt), 0);
    assert.equal(use(store, "b", 1, expiresAt), 1);
    assert.equal(use(store, "a", 1, expiresAt + second), 1);
  });

  test("rejects a new client's token if every client has one token and the store is full", () => {
    const clock = simulatedClock();
    const store = memoryReplayStore({ maxEntries: 8, clock });
    const counts = Array.from({ length: 9 }, (_, i) => use(store, `client ${i}`, 1, clock.now() + later));
    assert.deepEqual(counts, [1, 1, 1, 1, 1, 1, 1, 1, 0]);
    clock.setBy(later);
    assert.equal(use(store, "another", 1, clock.now() + later), 1);
  });

  test("responds quickly even if it is full and every token is from a different client", () => {
    const clock = simulatedClock();
    const most = 20_000;
    const store = memoryReplayStore({ maxEntries: most, clock });
    for (let i = 0; i < most; i += 1) assert.equal(use(store, `client ${i}`, 1, clock.now() + later), 1);
    const before = process.cpuUsage();
    for (let i = 0; i < 1_000; i += 1) assert.equal(use(store, `more ${i}`, 1, clock.now() + later), 0);
    for (let i = 0; i < 1_000; i += 1) assert.equal(use(store, `client ${i}`, 1, clock.now() + 2 * later), 1);
    const { user } = process.cpuUsage(before);
    assert.ok(user < 1_000_000, `${user / 1_000} ms of CPU for 2,000 tokens`);
  });

  test("accepts an expired token again and counts it once", () => {
    const clock = simulatedClock();
    const store = memoryReplayStore({ maxEntries: 2, clock });
    for (let use = 0; use < 5; use += 1) {
      assert.equal(store("x", clock.now() + second, "a"), true);
      clock.setBy(second);
    }
    assert.equal(store("y", clock.now() + second, "b"), true);
    assert.equal(store("z", clock.now() + second, "c"), true);
  });

  test("uses the verifier's clock if the store is the verifier's default", async () => {
    const clock = simulatedClock();
    const { clientAssertion } = verifier({ clock });
    const token = (): string => tokenOf("clientAssertion", { jti: "x", exp: clock.now() / second + 10 });
    assert.equal(await verdict(clientAssertion(token(), client)), "accepted");
    clock.setBy(-3_600 * second);
    assert.equal(await verdict(clientAssertion(token(), client)), "ERR_TOKEN_REPLAYED");
    clock.setBy(3_610 * second);
    assert.equal(await verdict(clientAssertion(token(), client)), "accepted");
  });

  test("rejects a limit of 0", () => {
    assert.throws(() => memoryReplayStore({ maxEntries: 0 }), { code: "ERR_OPTION_INVALID" });
  });

  const uses = fc.array(
    fc.record({
      key: fc.nat({ max: 12 }),
      clientId: fc.constantFrom("a", "a", "a", "b", "c"),
      lifetimeMs: fc.integer({ min: 1, max: 20 }),
      waitMs: fc.nat({ max: 3 }),
    }),
    { maxLength: 80, size: "max" },
  );
  test("property: never accepts a token twice, and never rejects a client with few tokens", () => {
    let refused = 0;
    fc.assert(
      fc.property(fc.integer({ min: 4, max: 16 }), uses, (maxEntries, uses) => {
        const clock = simulatedClock();
        const store = memoryReplayStore({ maxEntries, clock });
        const accepted = new Map<string, { until: number; clientId: string }>();
        for (const { key, clientId, lifetimeMs, waitMs } of uses) {
          clock.setBy(waitMs);
          const now = clock.now();
          for (const [name, { until }] of accepted) if (until <= now) accepted.delete(name);
          const name = `${clientId} ${key}`;
          // A repeated token has the same expiry.
          const until = accepted.get(name)?.until ?? now + lifetimeMs;
          let isAccepted = false;
          try {
            isAccepted = store(name, until, clientId) as boolean;
          } catch (error) {
            assert.equal((error as TokenError).code, "ERR_REPLAY_FULL");
            refused += 1;
            const own = [...accepted.values()].filter((token) => token.clientId === clientId).length;
            assert.ok(own >= Math.floor((maxEntries * 3) / 4 / 3), `refused with ${own} of ${maxEntries}`);
          }
          if (isAccepted) {
            assert.ok(!accepted.has(name), "accepted twice");
            accepted.set(name, { until, clientId });
          }
        }
      }),
      { numRuns: soak(300) },
    );
    assert.ok(refused > 0, "no store was full");
  });
});
