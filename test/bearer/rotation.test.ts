import assert from "node:assert/strict";
import { test } from "node:test";
import express from "express";
import { createProvider, localSigner } from "../../src/index.ts";
import { serial } from "../../src/base/async.ts";
import { createBearer } from "../../src/verify/bearer/index.ts";
import { ecKey } from "../support/keys.ts";
import { simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { compact, signature } from "../token/compact.ts";
import { listen } from "./node-faces.ts";

// A provider rotates, revokes, goes away and comes back, while clients ask an API on Express all the time. The clock of the guard is
// simulated, so that hours pass; all requests are real.

const audience = "https://api.example.com";
const clients = 8;
const each = soak(400);
const all = (status: number) => ({ [status]: each });

test("a rotation, a revocation and an outage under load: no valid token gets 401 or 403", async (t) => {
  const clock = simulatedClock();
  const inTurn = serial();
  const provider = { isDown: false, kids: ["a"] };
  const entries = () => Promise.all(provider.kids.map(async (kid) => ({ kid, signer: await localSigner(ecKey(kid)) })));
  const providerPort = await listen(
    t,
    (request, response) => void (provider.isDown ? request.socket.destroy() : served.node(request, response)),
  );
  const issuer = `http://127.0.0.1:${providerPort}`;
  const served = await createProvider({ issuer, keyset: await entries() });
  const publish = async (...kids: string[]): Promise<void> => {
    provider.kids = kids;
    await served.update({ keyset: await entries() });
  };
  const requests: string[] = [];
  const { express: guard } = createBearer({
    issuer,
    audience,
    clock,
    keySet: {
      maxWaitMs: 0,
      async fetch(url, init) {
        requests.push(new URL(url).pathname);
        const response = await fetch(url, init);
        // The clock of the provider is another one.
        const headers = new Headers(response.headers);
        headers.delete("date");
        return new Response(response.status === 304 ? null : await response.text(), {
          status: response.status,
          headers,
        });
      },
    },
  });
  const app = express();
  app.get("/", guard(), (_request, response) => void response.end());
  const url = `http://127.0.0.1:${await listen(t, app)}/`;

  const tokenOf = (kid: string): string => {
    const claims = { iss: issuer, aud: audience, sub: "alice", exp: Math.floor(clock.now() / 1000) + 90_000 };
    return compact({ alg: "ES256", kid, typ: "at+jwt" }, claims, signature("ES256", ecKey(kid)));
  };
  const statusOf = async (token: string): Promise<number> => {
    const response = await fetch(url, { headers: { Authorization: `Bearer ${token}` } });
    await response.body?.cancel();
    return response.status;
  };
  /** Asks with tokens of these kids from many clients, while the clock goes on by so much; how many answers had each status. */
  const load = async (kids: readonly string[], seconds = 0): Promise<Record<string, number>> => {
    const tokens = kids.map(tokenOf);
    const statuses: Record<string, number> = {};
    let asked = 0;
    const client = async (): Promise<void> => {
      while (asked < each) {
        asked += 1;
        const status = await statusOf(tokens[asked % tokens.length] as string);
        statuses[status] = (statuses[status] ?? 0) + 1;
        if (seconds > 0) await inTurn(() => clock.advance((seconds / each) * 1000));
      }
    };
    await Promise.all(Array.from({ length: clients }, client));
    return statuses;
  };
  const atMost = (most: number): void => {
    const { length } = requests.splice(0);
    t.diagnostic(`${length} requests, at most ${most}`);
    assert.ok(length <= most, `${length} requests`);
  };
  const counted = (): number => requests.splice(0).length;

  assert.deepEqual(await load(["a"]), all(200));
  assert.equal(counted(), 2, "discovery and the set, for all clients together");

  await publish("a", "b");
  assert.deepEqual(await load(["a"], 7_200), all(200), "the next key is announced, and two hours pass");
  assert.deepEqual(await load(["a", "b"]), all(200), "it signs");
  atMost(8);

  await publish("c", "a", "b");
  assert.deepEqual(await load(["a", "b", "c"]), all(200), "a key signs that nobody announced");
  atMost(2);

  await publish("c", "b");
  await load(["a", "b", "c"], 7_200);
  assert.deepEqual(
    await load(["a"]),
    all(401),
    "the revoked key is refused after two hours, the bound of docs/relying-party.md",
  );
  assert.deepEqual(await load(["b", "c"]), all(200));
  // Tokens of a key that is gone may cost a request each ten seconds.
  atMost(7_200 / 10 + 12);

  provider.isDown = true;
  assert.deepEqual(await load(["b", "c"], 3_000), all(200), "an outage, and keys that are known");
  assert.deepEqual(await load(["d"]), all(503), "a key that cannot be looked for");
  assert.deepEqual(await load(["b"], 60), all(200));
  await clock.advance(7_200_000);
  assert.deepEqual(await load(["b", "c"]), all(503), "the keys are too old");
  atMost(3_000 / 10 + 30);

  provider.isDown = false;
  await publish("d", "b", "c");
  await clock.advance(10_000);
  assert.deepEqual(await load(["b", "c", "d"]), all(200), "it is back, with a new key");
  atMost(3);
});
