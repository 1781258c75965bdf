import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeProtectedHeader } from "jose";
import type { JwksdError } from "../../src/base/errors.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { hour, second } from "../rules/key-records.ts";
import { randomFrom } from "../support/random.ts";
import { soak } from "../support/soak.ts";
import type { CountedStore } from "./counted-store.ts";
import { type ManagerChoice, type Replica, World, issuer, longCache, seen, staleMs, usableMs } from "./world.ts";

// Keys that are read only on a request: in Workers, in functions, and in a process that is frozen between two requests.

interface Instance extends Replica {
  readonly connection: CountedStore;
}

/** Returns a world whose store has keys, and an instance that has read nothing yet. */
async function worldWithKeys(choice: ManagerChoice = {}): Promise<{ world: World; instance: Instance }> {
  const world = new World();
  await world.stop(await world.start());
  return { world, instance: await demand(world, choice) };
}

async function demand(world: World, choice: ManagerChoice = {}): Promise<Instance> {
  const connection = world.store.connection();
  return { connection, ...(await world.start({ store: connection, onDemand: true, ...choice })) };
}

/** Requests the JWK Set and a token. Returns the status, and the token's kid or the code of the error. */
async function use(world: World, { provider }: Instance): Promise<[number, string]> {
  const response = await world.until(Promise.resolve(provider.fetch(new Request(`${issuer}/jwks`))));
  if (response.status === 503) assert.equal(response.headers.get("cache-control"), "no-store");
  const token = provider.sign({ sub: "a" }, { lifetimeSeconds: 60 });
  const signed = token.then(
    (token) => decodeProtectedHeader(token).kid ?? "",
    ({ code }: JwksdError) => code,
  );
  const outcome = await world.until(signed);
  await world.idle();
  return [response.status, outcome];
}

const refused = [503, "ERR_SIGNER_STALE"];
const days = soak(200, 10);
const readsOf = ({ connection }: Instance): number => connection.counts.read + connection.counts.checkIn;
const activeIn = async (world: World): Promise<string> =>
  (await world.document()).records.find(({ state }) => state === "active")?.kid ?? "";

test("an instance reads the store when it gets a request and leaves behind no timer or presence record", async () => {
  const { world, instance } = await worldWithKeys();
  const kid = await activeIn(world);
  assert.equal(readsOf(instance), 0);
  assert.deepEqual(await use(world, instance), [200, kid]);
  assert.equal(readsOf(instance), 1, "a check-in, which also shows the due steps");
  await world.pass(hour);
  assert.deepEqual([readsOf(instance), world.timers, await world.presence()], [1, 0, []]);
  assert.equal(instance.connection.counts.write, 0);
});

test("endpoint specification, section 7, Errors: a method other than GET and HEAD gets 405 before anything is read", async () => {
  const { instance } = await worldWithKeys();
  const response = await instance.provider.fetch(new Request(`${issuer}/jwks`, { method: "POST" }));
  assert.deepEqual([response.status, response.headers.get("allow"), readsOf(instance)], [405, "GET, HEAD", 0]);
});

test("after refreshSeconds, a provider responds first and reads the store in the background; after twice that time, it reads the store before it responds", async () => {
  const { world, instance } = await worldWithKeys();
  const { connection, provider } = instance;
  await use(world, instance);
  const rows: unknown[] = [];
  for (const ms of [29.9 * second, 30 * second, 10 * second, 60 * second]) {
    await world.pass(ms);
    const before = readsOf(instance);
    // The store is held, so an immediate answer cannot depend on it.
    const held = Promise.withResolvers<void>();
    connection.hook = async (_, go) => held.promise.then(go);
    const answer = provider.fetch(new Request(`${issuer}/jwks`));
    const waits = answer instanceof Promise;
    held.resolve();
    await answer;
    await world.idle();
    connection.hook = undefined;
    rows.push([waits, readsOf(instance) - before]);
  }
  assert.deepEqual(rows, [
    [false, 0],
    [false, 1],
    [false, 0],
    [true, 1],
  ]);
});

describe("an empty store", () => {
  test("is not given any keys, because new keys would replace any that were lost", async () => {
    const world = new World();
    const instance = await demand(world);
    assert.deepEqual(await use(world, instance), refused);
    await assert.rejects(world.until(instance.manager.runDueSteps()), { code: "ERR_STORE_EMPTY" });
    await assert.rejects(instance.provider.sign({}, { lifetimeSeconds: 60 }), ({ message, cause }: JwksdError) => {
      assert.match(message, /has no keys/);
      return (cause as JwksdError).code === "ERR_STORE_EMPTY";
    });
    assert.equal((await world.document()).records.length, 0);
    const failed = instance.events.find((event) => event.type === "failed");
    assert.deepEqual([failed?.error.code, failed?.retryInMs], ["ERR_STORE_EMPTY", second]);
  });

  test("is read again a second after a request found it empty, so the first key is served soon", async () => {
    const world = new World();
    const instance = await demand(world);
    assert.deepEqual(await use(world, instance), refused);
    const before = readsOf(instance);
    assert.deepEqual(await use(world, instance), refused);
    assert.equal(readsOf(instance), before, "within a second");
    await world.stop(await world.start());
    await world.pass(second);
    assert.deepEqual(await use(world, instance), [200, await activeIn(world)]);
    assert.equal(instance.events.at(-1)?.type, "recovered");
  });

  test("gets keys if requireStore is false, and two instances agree on one set of keys", async () => {
    const world = new World();
    const both = [await demand(world, { requireStore: false }), await demand(world, { requireStore: false })] as const;
    const [one, other] = await Promise.all(both.map((instance) => use(world, instance)));
    assert.deepEqual(one, [200, await activeIn(world)]);
    assert.deepEqual(other, one);
  });
});

describe("a store", () => {
  test("that is unavailable is read once per refreshSeconds; keys are served until they are stale, then requests get 503, and keys are served again once the store is back", async () => {
    const { world, instance } = await worldWithKeys();
    const before = await use(world, instance);
    instance.connection.isGone = true;
    await world.pass(hour);
    const readsBefore = readsOf(instance);
    for (let i = 0; i < 60; i += 1) {
      assert.deepEqual(await use(world, instance), before);
      await world.pass(second);
    }
    // Each checks in and then reads the changes of other processes.
    const reads = readsOf(instance) - readsBefore;
    assert.ok(reads <= 6, `${reads} reads`);
    await world.passTo(usableMs - second);
    assert.deepEqual(await use(world, instance), before);
    await world.pass(2 * second);
    assert.deepEqual(await use(world, instance), refused);
    instance.connection.isGone = false;
    assert.deepEqual(await use(world, instance), refused, "no read that soon after a failed one");
    await world.pass(30 * second);
    assert.deepEqual(await use(world, instance), before);
    assert.deepEqual(
      instance.events.map(({ type }) => type).filter((type) => type === "recovered"),
      ["recovered"],
    );
  });

  test("that hangs makes one request wait for one second; other requests do not wait", async () => {
    const { world, instance } = await worldWithKeys();
    const before = await use(world, instance);
    await world.pass(hour);
    instance.connection.hangs = true;
    const answers: number[] = [];
    const ask = async (): Promise<void> => {
      const { status } = await instance.provider.fetch(new Request(`${issuer}/jwks`));
      assert.equal(status, 200);
      answers.push(world.elapsedMs);
    };
    const begun = world.elapsedMs;
    const first = ask();
    await instance.connection.hung();
    await world.pass(second);
    await first;
    for (let i = 0; i < 20; i += 1) {
      await ask();
      await world.pass(second);
    }
    assert.deepEqual(
      answers.map((at) => at - begun),
      [1, ...Array.from({ length: 20 }, (_, i) => i + 1)].map((s) => s * second),
    );
    instance.connection.hangs = false;
    await world.pass(hour);
    assert.deepEqual(await use(world, instance), before);
  });

  test("that hangs before the first read makes requests wait only until the first failure", async () => {
    const { world, instance } = await worldWithKeys();
    instance.connection.hangs = true;
    const waited: number[] = [];
    const requests: Promise<void>[] = [];
    for (let count = 0; count < 40; count += 1) {
      const begun = world.elapsedMs;
      const response = Promise.resolve(instance.provider.fetch(new Request(`${issuer}/jwks`)));
      requests.push(response.then(({ status }) => void waited.push(status === 503 ? world.elapsedMs - begun : -1)));
      await world.idle();
      await world.pass(second / 2);
    }
    await world.pass(20 * second);
    await Promise.all(requests);
    assert.equal(waited.length, 40);
    assert.ok(waited.every((ms) => ms >= 0));
    assert.ok(waited.filter((ms) => ms === 0).length >= 15, waited.join());
    assert.ok(readsOf(instance) <= 11, `${readsOf(instance)} reads`);
    instance.connection.hangs = false;
    await world.pass(30 * second);
    assert.equal((await use(world, instance))[0], 200);
  });
});

test("a process that was frozen between two requests reads the store before it uses its keys again", async () => {
  const { world } = await worldWithKeys();
  const machine = world.machine();
  const instance = await demand(world, { clock: machine.clock });
  const [, kid] = await use(world, instance);
  // Its read is in flight when it is frozen and ends long after, when the key has leaked.
  await world.pass(31 * second);
  const held = Promise.withResolvers<void>();
  instance.connection.hook = async (_, go) => {
    const answer = await go();
    await held.promise;
    return answer;
  };
  assert.equal((await instance.provider.fetch(new Request(`${issuer}/jwks`))).status, 200);
  machine.isStopped = true;
  const asleepAt = world.elapsedMs;
  const operator = await world.start();
  await world.run(operator, { type: "revoke", kid, replacement: await operator.manager.makeKey("sig") });
  await world.stop(operator);
  await world.pass(staleMs);
  machine.asleepMs = world.elapsedMs - asleepAt;
  machine.isStopped = false;
  instance.connection.hook = undefined;
  held.resolve();
  await new Promise(setImmediate);
  assert.deepEqual(await use(world, instance), [200, await activeIn(world)]);
  assert.notEqual(await activeIn(world), kid);
});

test("a cron job that runs only at the times reported by the store takes each due step on time", async () => {
  const world = new World();
  let due: number | undefined;
  const connection = world.store.connection();
  const store: Register = {
    name: connection.name,
    read: (...call) => connection.read(...call),
    async write(text, ifVersion, options) {
      const isWritten = await connection.write(text, ifVersion, options);
      if (isWritten) due = options?.due;
      return isWritten;
    },
  };
  const { manager } = await world.start({ store, onDemand: true, requireStore: false });
  await world.until(manager.runDueSteps());
  const times = [world.elapsedMs];
  while (world.elapsedMs < 40 * 24 * hour) {
    assert.ok(due !== undefined, "a write gives the time of the next step");
    await world.pass(due - world.clock.now());
    await world.until(manager.runDueSteps());
    times.push(world.elapsedMs);
  }
  const { events } = await world.document();
  const signed = events.flatMap(({ type, at }) => (type === "activated" ? [at] : []));
  const gaps = signed.slice(1).map((at, index) => at - (signed[index] as number));
  assert.deepEqual([...new Set(gaps)], [4 * 24 * hour], "keys rotate every four days");
  assert.deepEqual([signed.length, times.length], [11, 30], "ten rotations with three runs each");
});

test("verifies a token with a new kid after one more read; unknown kids cause at most one read per second", async () => {
  const { world, instance } = await worldWithKeys();
  await use(world, instance);
  const operator = await world.start();
  const key = await operator.manager.makeKey("sig");
  await world.run(operator, { type: "rotate", use: "sig", now: true, key });
  const token = await operator.provider.sign({ sub: "a", aud: "api" }, { lifetimeSeconds: 60 });
  await world.stop(operator);
  await world.pass(second);
  const { claims } = await world.until(instance.provider.verify(token, { audience: "api" }));
  assert.equal(claims["sub"], "a");
  await world.pass(second);
  const forged = `${Buffer.from('{"alg":"ES256","kid":"none"}').toString("base64url")}.e30.${"A".repeat(86)}`;
  const before = readsOf(instance);
  for (let i = 0; i < 10; i += 1)
    await assert.rejects(world.until(instance.provider.verify(forged, { audience: "api" })), {
      code: "ERR_TOKEN_KID_UNKNOWN",
    });
  assert.equal(readsOf(instance) - before, 1);
});

test("signingKey() and node() read the store on demand; before the first read, nothing is known", async () => {
  const { world, instance } = await worldWithKeys();
  const { manager, provider } = instance;
  assert.throws(() => manager.policy, { code: "ERR_SIGNER_STALE" });
  assert.deepEqual([manager.records, manager.isReady, manager.metrics()], [[], false, []]);
  const { kid } = await world.until(provider.signingKey());
  assert.equal(kid, await activeIn(world));
  await world.pass(hour);
  const written = new Promise<number>((resolve) => {
    const response = { headersSent: false, setHeader() {}, writeHead: (status: number) => resolve(status), end() {} };
    provider.node({ url: "/jwks", headers: {} }, response);
  });
  assert.equal(await world.until(written), 200);
  assert.equal((await seen(instance)).cacheControl, longCache);
  const discovery = provider.fetch(new Request(`${issuer}/.well-known/openid-configuration`));
  assert.ok(discovery instanceof Response, "the discovery document has no keys");
});

test(`for ${days} days, tokens from three instances that are called at random always verify with every cached set`, async () => {
  const { world, instance } = await worldWithKeys();
  const instances = [instance, await demand(world), await demand(world)];
  const cached: { at: number; kids: string[] }[] = [];
  const tokens: { at: number; kid: string }[] = [];
  const kids = new Set<string>();
  const random = randomFrom(1);
  while (world.elapsedMs < days * 24 * hour) {
    await world.pass(Math.floor(random() ** 4 * 5 * hour));
    const one = instances[Math.floor(random() * 3)] as Instance;
    const now = world.elapsedMs;
    const set = await world.until(seen(one));
    while ((cached[0]?.at ?? now) < now - 2 * hour) cached.shift();
    while ((tokens[0]?.at ?? now) < now - hour) tokens.shift();
    cached.push({ at: now, kids: set.kids });
    for (const { kid } of tokens) assert.ok(set.kids.includes(kid), "a valid token has lost its key");
    for (const { at, kids } of cached)
      assert.ok(kids.includes(set.signs), `a set cached ${(now - at) / 1000} s ago lacks a key`);
    tokens.push({ at: now, kid: set.signs });
    kids.add(set.signs);
  }
  assert.ok(kids.size > days / 5, `${kids.size} keys`);
});
