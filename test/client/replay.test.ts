import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import fc from "fast-check";
import { type Client, type ReplayStore, type TokenError, memoryReplayStore } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { simulatedClock } from "../support/simulated.ts";
import { compact, signature, verdict } from "../token/compact.ts";
import { client, clientId, jwks, kinds, tokenOf, verifier } from "./client.ts";

const second = 1_000;

for (const kind of kinds) {
  describe(`${kind}: a jti is used once (RFC 7523 section 3, 7)`, () => {
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

    test("another client has its own, whatever is in its id or the jti", async () => {
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

    test("of uses at once exactly one wins", async () => {
      const check = verifier()[kind];
      const token = tokenOf(kind);
      const verdicts = await Promise.all(Array.from({ length: 50 }, () => verdict(check(token, client))));
      assert.deepEqual(verdicts.toSorted(), [...Array<string>(49).fill("ERR_TOKEN_REPLAYED"), "accepted"]);
    });

    test("only a token that is good in all else is used up", async () => {
      const check = verifier()[kind];
      const jti = "x";
      const spoiled: [name: string, token: string, client?: Client][] = [
        ["signature", compact({ alg: "ES256", kid: "ES256" }, { jti }, signature("ES256", ecKey("other")))],
        ["aud", tokenOf(kind, { jti, aud: "https://other.example" })],
        ["iss", tokenOf(kind, { jti, iss: "client-2" })],
        ["sub or client_id", tokenOf(kind, { jti, sub: kind === "clientAssertion" ? "x" : clientId, client_id: "x" })],
        ["exp that has passed", tokenOf(kind, { jti, exp: 1 })],
        ["exp that is far ahead", tokenOf(kind, { jti, exp: 1e12 })],
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

test("a jti of an assertion is not one of a request object", async () => {
  const { clientAssertion, requestObject } = verifier();
  assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion", { jti: "x" }), client)), "accepted");
  assert.equal(await verdict(requestObject(tokenOf("requestObject", { jti: "x" }), client)), "ERR_TOKEN_REPLAYED");
});

describe("around the expiry of a token", () => {
  const rows: [name: string, expAfter: number, clockToleranceSeconds: number][] = [
    ["a whole second", 10, 0],
    ["a fraction of a second", 10.5, 0],
    ["a small fraction", 10.001, 0],
    ["a tolerance", 10, 5],
    ["a fractional tolerance", 10, 0.5],
    ["fractions of both", 10.25, 0.5],
  ];
  for (const [name, expAfter, clockToleranceSeconds] of rows) {
    test(`${name}: it is accepted once, at whatever moments it is used, and its jti is free again then`, async () => {
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

  test("a token that expires while its keys are fetched is not accepted, and not twice", async () => {
    const clock = simulatedClock();
    const waiting: (() => void)[] = [];
    const fetch = async (): Promise<Response> => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return Response.json(jwks);
    };
    const { clientAssertion } = verifier({ clock, fetch });
    const remote: Client = { clientId, jwksUri: "https://client.example/jwks" };
    const token = tokenOf("clientAssertion", { exp: clock.now() / second + 2 });
    const verdicts = [token, token].map((token) => verdict(clientAssertion(token, remote)));
    await clock.advance(3 * second);
    waiting.forEach((resolve) => resolve());
    assert.ok(!(await Promise.all(verdicts)).includes("accepted"));
  });
});

/** A store that several replicas share: each step takes a while, but the marking itself is one step. */
function sharedStore(): ReplayStore & { readonly uses: Map<string, number> } {
  const uses = new Map<string, number>();
  return {
    uses,
    async use(id, expiresAt) {
      await new Promise(setImmediate);
      const isNew = !uses.has(id);
      if (isNew) uses.set(id, expiresAt);
      await new Promise(setImmediate);
      return isNew;
    },
  };
}

describe("a shared store", () => {
  test("of uses at all replicas at once exactly one wins", async () => {
    const replay = sharedStore();
    const replicas = Array.from({ length: 5 }, () => verifier({ replay }));
    const token = tokenOf("clientAssertion");
    const verdicts = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        verdict(replicas[index % 5]?.clientAssertion(token, client) ?? Promise.reject(new Error())),
      ),
    );
    assert.deepEqual(verdicts.toSorted(), [...Array<string>(49).fill("ERR_TOKEN_REPLAYED"), "accepted"]);
    assert.equal(replay.uses.size, 1);
  });

  test("remembers a short name of each token, until the token is refused anyway", async () => {
    const clock = simulatedClock();
    clock.setBy(-(clock.now() % second));
    const replay = sharedStore();
    const exp = clock.now() / second + 60.25;
    const jti = "secret-".repeat(1_000);
    const { clientAssertion } = verifier({ clock, replay, clockToleranceSeconds: 5 });
    await clientAssertion(tokenOf("clientAssertion", { jti, exp }), client);
    const [[id = "", expiresAt] = []] = replay.uses;
    assert.match(id, /^[\w-]{43}$/);
    // `verify` refuses it from the next whole second on.
    assert.equal(expiresAt, clock.now() + 66 * second);
  });

  test("a token without a jti is not its business", async () => {
    const replay = { use: () => assert.fail("the store was asked") };
    await verifier({ replay }).requestObject(tokenOf("requestObject", { jti: undefined }), client);
  });

  test("that forgot too early does not let an expired token in", async () => {
    const clock = simulatedClock();
    const replay: ReplayStore = {
      async use() {
        clock.setBy(60 * second);
        return true;
      },
    };
    const token = tokenOf("clientAssertion", { exp: clock.now() / second + 60 });
    assert.equal(await verdict(verifier({ clock, replay }).clientAssertion(token, client)), "ERR_TOKEN_EXPIRED");
  });

  test("that fails lets nothing in", async () => {
    const down = new Error("no connection");
    const failing = [
      () => Promise.reject(down),
      () => {
        throw down;
      },
    ];
    for (const use of failing) {
      const verifying = verifier({ replay: { use } }).clientAssertion(tokenOf("clientAssertion"), client);
      await assert.rejects(verifying, (error) => error === down);
    }
  });
});

describe("the store in memory", () => {
  test("is full of tokens that have not expired: new ones are refused, known ones are still known", async () => {
    const clock = simulatedClock();
    const { clientAssertion } = verifier({ clock, replay: memoryReplayStore({ maxEntries: 4, clock }) });
    const token = (jti: string, seconds: number): string =>
      tokenOf("clientAssertion", { jti, exp: clock.now() / second + seconds });
    await clientAssertion(token("a", 10), client);
    await clientAssertion(token("b", 60), client);
    await assert.rejects(clientAssertion(token("c", 60), client), {
      name: "TokenError",
      code: "ERR_REPLAY_FULL",
      retryable: true,
    });
    assert.equal(await verdict(clientAssertion(token("a", 10), client)), "ERR_TOKEN_REPLAYED");
    clock.setBy(10 * second);
    assert.equal(await verdict(clientAssertion(token("c", 60), client)), "accepted");
    assert.equal(await verdict(clientAssertion(token("b", 50), client)), "ERR_TOKEN_REPLAYED");
    assert.equal(await verdict(clientAssertion(token("d", 60), client)), "ERR_REPLAY_FULL");
  });

  test("holds 100,000 by default, by the machine's clock", () => {
    const store = memoryReplayStore();
    const later = Date.now() + 60 * second;
    for (let index = 0; index < 100_000; index += 1) assert.equal(store.use(`${index}`, later, `${index}`), true);
    assert.throws(() => store.use("x", later, "x"), { code: "ERR_REPLAY_FULL" });
    assert.equal(store.use("99999", later, "99999"), false);
  });

  test("clients that use all they can leave room for others, and the room comes back", () => {
    const clock = simulatedClock();
    const store = memoryReplayStore({ maxEntries: 1_000, clock });
    let ids = 0;
    const use = (clientId: string): unknown => store.use(`${(ids += 1)}`, clock.now() + 60 * second, clientId);
    const fill = (clientId: string): number => {
      for (let count = 0; count <= 1_000; count += 1) {
        try {
          use(clientId);
        } catch (error) {
          assert.equal((error as TokenError).code, "ERR_REPLAY_FULL");
          return count;
        }
      }
      return Infinity;
    };
    assert.deepEqual([fill("a"), fill("b"), fill("c"), fill("a"), fill("d")], [500, 250, 125, 0, 63]);
    clock.setBy(60 * second);
    assert.equal(use("c"), true);
    assert.deepEqual([fill("b"), fill("c")], [500, 249]);
  });

  test("a token that has expired may be used again, and counts once", () => {
    const clock = simulatedClock();
    const store = memoryReplayStore({ maxEntries: 2, clock });
    for (let use = 0; use < 5; use += 1) {
      assert.equal(store.use("x", clock.now() + second, "a"), true);
      clock.setBy(second);
    }
    assert.equal(store.use("y", clock.now() + second, "b"), true);
    assert.equal(store.use("z", clock.now() + second, "c"), true);
  });

  test("the verifier's default store goes by the verifier's clock", async () => {
    const clock = simulatedClock();
    const { clientAssertion } = verifier({ clock });
    const token = (): string => tokenOf("clientAssertion", { jti: "x", exp: clock.now() / second + 10 });
    assert.equal(await verdict(clientAssertion(token(), client)), "accepted");
    clock.setBy(-3_600 * second);
    assert.equal(await verdict(clientAssertion(token(), client)), "ERR_TOKEN_REPLAYED");
    clock.setBy(3_610 * second);
    assert.equal(await verdict(clientAssertion(token(), client)), "accepted");
  });

  for (const maxEntries of [0, -1, Number.NaN, Infinity, "5"]) {
    test(`a bound of ${inspect(maxEntries)} is refused`, () => {
      const refusal = { name: "ConfigError", code: "ERR_OPTION_INVALID" };
      assert.throws(() => memoryReplayStore({ maxEntries: maxEntries as number }), refusal);
    });
  }

  const uses = fc.array(
    fc.record({
      id: fc.nat({ max: 6 }),
      clientId: fc.constantFrom("a", "b", "c"),
      lifetimeMs: fc.integer({ min: 1, max: 20 }),
      waitMs: fc.nat({ max: 8 }),
    }),
    { maxLength: 60, size: "max" },
  );
  test("property: over any uses it remembers each token until its expiry, and never more than its bounds", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), uses, (maxEntries, uses) => {
        const clock = simulatedClock();
        const store = memoryReplayStore({ maxEntries, clock });
        const model = new Map<string, { until: number; clientId: string }>();
        for (const { id, clientId, lifetimeMs, waitMs } of uses) {
          clock.setBy(waitMs);
          const now = clock.now();
          for (const [name, { until }] of model) if (until <= now) model.delete(name);
          const name = `${clientId} ${id}`;
          const use = (): unknown => store.use(name, now + lifetimeMs, clientId);
          const own = [...model.values()].filter((token) => token.clientId === clientId).length;
          if (model.has(name)) assert.equal(use(), false);
          else if (own >= maxEntries - model.size) assert.throws(use, { code: "ERR_REPLAY_FULL" });
          else {
            assert.equal(use(), true);
            model.set(name, { until: now + lifetimeMs, clientId });
          }
        }
      }),
      { numRuns: 300 },
    );
  });
});
