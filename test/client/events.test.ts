import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type ClientKeyMetadata,
  type ClientVerifierEvent,
  type ClientVerifierOptions,
  memoryReplayStore,
} from "../../src/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { type Script, entry as published, jwkSetReply, reply, served } from "../support/simulated.ts";
import { compact, noSignature, signature, verdict } from "../token/compact.ts";
import {
  client,
  clientId,
  clock,
  entry,
  hosted,
  jwksUri,
  kinds,
  now,
  privateKeys,
  remote,
  tokenOf,
  verifier,
} from "./client.ts";

const madeUp = (kid: string): string => compact({ alg: "ES256", kid }, {}, noSignature);

function listening(options: Partial<ClientVerifierOptions> = {}) {
  const events: ClientVerifierEvent[] = [];
  return { events, ...verifier({ onEvent: (event) => events.push(event), ...options }) };
}

/** Listens to a verifier with keys at a URL. */
function listeningTo(script: Script) {
  const events: ClientVerifierEvent[] = [];
  return { events, ...hosted(script, { onEvent: (event) => events.push(event) }) };
}

for (const kind of kinds) {
  test(`${kind}: a refusal is reported with its code; an accepted token is not reported`, async () => {
    const { events, [kind]: check } = listening();
    const token = tokenOf(kind);
    await check(token, client);
    assert.deepEqual(events, []);
    for (const refused of [token, tokenOf(kind, { exp: 1 }), tokenOf(kind, {}, { kid: "x" }), "x"])
      await assert.rejects(check(refused, client));
    assert.deepEqual(
      events,
      ["ERR_TOKEN_REPLAYED", "ERR_TOKEN_EXPIRED", "ERR_TOKEN_KID_UNKNOWN", "ERR_TOKEN_MALFORMED"].map((code) => ({
        type: "refused",
        kind,
        clientId,
        code,
      })),
    );
  });
}

test("does not report a caller's mistake or a failing store as a refusal", async () => {
  const { events, clientAssertion } = listening({ replay: () => Promise.reject(new Error("down")) });
  for (const wrong of [{ clientId }, undefined as unknown as ClientKeyMetadata, remote, client])
    await assert.rejects(clientAssertion(tokenOf("clientAssertion"), wrong));
  assert.deepEqual(events, []);
});

const bytesOf = (kid: string): number => JSON.stringify({ keys: [published(kid)] }).length;

describe("keys at a jwks_uri", () => {
  test("requests for keys and key changes are reported", async () => {
    const { events, origin, clientAssertion } = listeningTo(served(["a"]));
    await verdict(clientAssertion(madeUp("a"), remote));
    assert.deepEqual(events, [
      { type: "changed", jwksUri, added: ["a"], removed: [] },
      { type: "refreshed", jwksUri, status: 200, bytes: bytesOf("a") },
      { type: "refused", kind: "clientAssertion", clientId, code: "ERR_TOKEN_SIGNATURE" },
    ]);
    events.length = 0;
    origin.script = served(["b"]);
    await verdict(clientAssertion(madeUp("x"), remote));
    assert.deepEqual(events.slice(0, 2), [
      { type: "changed", jwksUri, added: ["b"], removed: ["a"] },
      { type: "refreshed", jwksUri, status: 200, bytes: bytesOf("b") },
    ]);
  });

  const broken: [name: string, script: Script, event: object][] = [
    ["not a JWK Set", jwkSetReply("{}"), { type: "failed", code: "ERR_FETCH_BODY" }],
    ["HTML", jwkSetReply("<html>secret</html>"), { type: "failed", code: "ERR_FETCH_BODY" }],
    ["404", reply(404), { type: "failed", code: "ERR_FETCH_STATUS" }],
  ];
  for (const [name, script, expected] of broken) {
    test(`a broken set is reported: ${name}`, async () => {
      const { events, clientAssertion } = listeningTo(script);
      await assert.rejects(clientAssertion(madeUp("a"), remote));
      const [event, ...others] = events;
      assert.ok(event?.type === "failed");
      const { message, ...rest } = event;
      assert.deepEqual(rest, { ...expected, jwksUri });
      assert.match(message, /^https:\/\/client\.example\/jwks:? /);
      assert.deepEqual(
        others.map(({ type }) => type),
        ["refused"],
      );
      assert.ok(!JSON.stringify(events).includes("secret"));
    });
  }

  test("unusable keys in a set are reported", async () => {
    const key = { ...ecKey("a"), kid: "a" };
    const { events, clientAssertion } = listeningTo(jwkSetReply(JSON.stringify({ keys: [key] })));
    await assert.rejects(clientAssertion(madeUp("a"), remote), { code: "ERR_TOKEN_KID_UNKNOWN" });
    const reason = "it contains a private key, so anyone who can read the set can sign with it";
    assert.deepEqual(events[0], { type: "skipped", jwksUri, keys: [{ index: 0, kid: "a", reason }] });
    assert.ok(!JSON.stringify(events).includes(key.d));
  });
});

describe("keys by value", () => {
  test("an unusable key is reported only once, even if several tokens name it", async () => {
    const { events, clientAssertion } = listening();
    const keys = [
      entry("x"),
      entry("ES256"),
      { ...entry("k"), ...withoutPrivate(privateKeys["ES256"] ?? {}), use: "enc" },
    ];
    for (let use = 0; use < 2; use += 1)
      await assert.rejects(clientAssertion(madeUp("k"), { clientId, jwks: { keys } }));
    assert.deepEqual(
      events.filter(({ type }) => type === "skipped"),
      [{ type: "skipped", clientId, keys: [{ index: 2, kid: "k", reason: 'its "use" is not "sig"' }] }],
    );
  });

  test("a value that is not a JWK Set is reported as refused", async () => {
    const { events, clientAssertion } = listening();
    await assert.rejects(clientAssertion(madeUp("k"), { clientId, jwks: {} as { keys: [] } }));
    assert.deepEqual(events, [{ type: "refused", kind: "clientAssertion", clientId, code: "ERR_KEY_FORMAT" }]);
  });
});

const exhausted = (events: ClientVerifierEvent[]) => events.filter(({ type }) => type === "exhausted");

describe("an exhausted budget is reported in addition to the refusal", () => {
  test("requests for a client's keys", async () => {
    const { events, clock, clientAssertion } = listeningTo(reply(500));
    assert.equal(await verdict(clientAssertion(madeUp("a"), remote)), "ERR_FETCH_STATUS");
    await clock.advance(1_000);
    assert.equal(await verdict(clientAssertion(madeUp("a"), remote)), "ERR_FETCH_STATUS");
    assert.equal(await verdict(clientAssertion(madeUp("a"), remote)), "ERR_KEYS_RETRY_LATER");
    assert.deepEqual(exhausted(events), [{ type: "exhausted", budget: "keys", kind: "clientAssertion", clientId }]);
  });

  test("requests in flight", async () => {
    const { events, clientAssertion, requestObject } = listeningTo(() => new Promise(() => {}));
    const clients = Array.from({ length: 251 }, (_, i): ClientKeyMetadata => ({
      clientId,
      jwksUri: `https://client-${i}.example/`,
    }));
    for (const silent of clients.slice(1)) void verdict(clientAssertion(madeUp("a"), silent));
    assert.equal(await verdict(requestObject(madeUp("a"), clients[0] as ClientKeyMetadata)), "ERR_FETCH_BUSY");
    assert.deepEqual(exhausted(events), [{ type: "exhausted", budget: "fetches", kind: "requestObject", clientId }]);
  });

  test("the replay store", async () => {
    const { events, clientAssertion } = listening({ replay: memoryReplayStore({ maxEntries: 1, clock }) });
    await clientAssertion(tokenOf("clientAssertion", { exp: now + 60 }), client);
    assert.equal(
      await verdict(clientAssertion(tokenOf("clientAssertion", { exp: now + 30 }), client)),
      "ERR_REPLAY_FULL",
    );
    assert.deepEqual(exhausted(events), [{ type: "exhausted", budget: "replay", kind: "clientAssertion", clientId }]);
  });
});

test("truncates and escapes external strings wherever they appear", async () => {
  const hostile = `\u001b[2J\r\n\u202e\u2028\ud800${"x".repeat(1_000)}`;
  const { events, clientAssertion } = listeningTo(
    jwkSetReply(
      JSON.stringify({
        keys: [
          { ...withoutPrivate(ecKey("a")), kid: hostile },
          { kty: hostile, kid: hostile },
        ],
      }),
    ),
  );
  await assert.rejects(clientAssertion(madeUp(hostile), { clientId: hostile, jwksUri: `${jwksUri}#${hostile}` }));
  assert.deepEqual(new Set(events.map(({ type }) => type)), new Set(["skipped", "changed", "refreshed", "refused"]));
  for (const text of JSON.stringify(events).match(/"(?:[^"\\]|\\.)*"/g) ?? []) {
    const value = JSON.parse(text) as string;
    assert.ok(value.length < 400, value);
    assert.ok(!/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(value), text);
  }
});

test("no event contains a token or a key", async () => {
  const { events, clientAssertion } = listeningTo(served(["a"]));
  const key = ecKey("a");
  const token = compact({ alg: "ES256", kid: "a" }, { aud: "x" }, signature("ES256", key));
  await assert.rejects(clientAssertion(token, remote));
  const reported = JSON.stringify(events);
  for (const secret of [...token.split("."), key.x, key.y]) assert.ok(!reported.includes(secret), secret);
});

test("a listener that throws or rejects changes nothing", async () => {
  for (const onEvent of [() => assert.fail("a listener"), () => Promise.reject(new Error("a listener"))]) {
    assert.equal(await verdict(verifier({ onEvent }).clientAssertion("x", client)), "ERR_TOKEN_MALFORMED");
  }
});
