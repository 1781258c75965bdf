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

// Keys that are read only when somebody asks: in Workers, functions, and where a process is frozen between two requests.

interface Instance extends Replica {
  readonly line: CountedStore;
}

/** A world whose store holds keys, and an instance that has read nothing yet. */
async function worldWithKeys(choice: ManagerChoice = {}): Promise<{ world: World; instance: Instance }> {
  const world = new World();
  await world.stop(await world.start());
  return { world, instance: await demand(world, choice) };
}

async function demand(world: World, choice: ManagerChoice = {}): Promise<Instance> {
  const line = world.store.line();
  return { line, ...(await world.start({ store: line, onDemand: true, ...choice })) };
}

/** The status of the JWK Set, and the kid of a token or the code of the error. */
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
const readsOf = ({ line }: Instance): number => line.counts.read + line.counts.checkIn;
const activeIn = async (world: World): Promise<string> =>
  (await world.document()).records.find(({ state }) => state === "active")?.kid ?? "";

test("reads when it is asked, and leaves no timer and no line", async () => {
  const { world, instance } = await worldWithKeys();
  const kid = await activeIn(world);
  assert.equal(readsOf(instance), 0);
  assert.deepEqual(await use(world, instance), [200, kid]);
  assert.equal(readsOf(instance), 2, "a check-in, and a read for due steps");
  await world.pass(hour);
  assert.deepEqual([readsOf(instance), world.timers, await world.lines()], [2, 0, []]);
  assert.equal(instance.line.counts.write, 0);
});

test("contract, section 7, Errors: another method than GET and HEAD gets 405 before anything was read", async () => {
  const { instance } = await worldWithKeys();
  const response = await instance.provider.fetch(new Request(`${issuer}/jwks`, { method: "POST" }));
  assert.deepEqual([response.status, response.headers.get("allow"), readsOf(instance)], [405, "GET, HEAD", 0]);
});

test("a read is renewed beside the answer after refreshSeconds, and before it after twice as long", async () => {
  const { world, instance } = await worldWithKeys();
  const { line, provider } = instance;
  await use(world, instance);
  const rows: unknown[] = [];
  for (const ms of [29.9 * second, 30 * second, 10 * second, 60 * second]) {
    await world.pass(ms);
    const before = readsOf(instance);
    // Whether the answer comes at once does not depend on the store.
    const held = Promise.withResolvers<void>();
    line.hook = async (_, go) => held.promise.then(go);
    const answer = provider.fetch(new Request(`${issuer}/jwks`));
    const waits = answer instanceof Promise;
    held.resolve();
    await answer;
    await world.idle();
    line.hook = undefined;
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
  test("gets no keys: whatever was lost there would be replaced", async () => {
    const world = new World();
    const instance = await demand(world);
    assert.deepEqual(await use(world, instance), refused);
    await assert.rejects(world.until(instance.manager.runDueSteps()), { code: "ERR_STORE_EMPTY" });
    await assert.rejects(instance.provider.sign({}, { lifetimeSeconds: 60 }), ({ message, cause }: JwksdError) => {
      assert.match(message, /holds no keys/);
      return (cause as JwksdError).code === "ERR_STORE_EMPTY";
    });
    assert.equal((await world.document()).records.length, 0);
    const failed = instance.told.find((event) => event.type === "failed");
    assert.deepEqual([failed?.error.code, failed?.retryInMs], ["ERR_STORE_EMPTY", second]);
  });

  test("is read again a second after a request found it empty, so the first key is served as soon as there is one", async () => {
    const world = new World();
    const instance = await demand(world);
    assert.deepEqual(await use(world, instance), refused);
    const before = readsOf(instance);
    assert.deepEqual(await use(world, instance), refused);
    assert.equal(readsOf(instance), before, "within a second");
    await world.stop(await world.start());
    await world.pass(second);
    assert.deepEqual(await use(world, instance), [200, await activeIn(world)]);
    assert.equal(instance.told.at(-1)?.type, "recovered");
  });

  test("gets them with requireStore: false; two instances make the same", async () => {
    const world = new World();
    const both = [await demand(world, { requireStore: false }), await demand(world, { requireStore: false })] as const;
    const [one, other] = await Promise.all(both.map((instance) => use(world, instance)));
    assert.deepEqual(one, [200, await activeIn(world)]);
    assert.deepEqual(other, one);
  });
});

describe("the store", () => {
  test("is gone: one read each refreshSeconds, keys until they are stale, then 503, and again when it is back", async () => {
    const { world, instance } = await worldWithKeys();
    const good = await use(world, instance);
    instance.line.isGone = true;
    await world.pass(hour);
    const before = readsOf(instance);
    for (let i = 0; i < 60; i += 1) {
      assert.deepEqual(await use(world, instance), good);
      await world.pass(second);
    }
    // Each checks in and then reads what other processes have changed.
    assert.ok(readsOf(instance) - before <= 6, `${readsOf(instance) - before} reads`);
    await world.passTo(usableMs - second);
    assert.deepEqual(await use(world, instance), good);
    await world.pass(2 * second);
    assert.deepEqual(await use(world, instance), refused);
    instance.line.isGone = false;
    assert.deepEqual(await use(world, instance), refused, "no read so soon after one that failed");
    await world.pass(30 * second);
    assert.deepEqual(await use(world, instance), good);
    assert.deepEqual(
      instance.told.map(({ type }) => type).filter((type) => type === "recovered"),
      ["recovered"],
    );
  });

  test("hangs: one request waits for a second, and others do not", async () => {
    const { world, instance } = await worldWithKeys();
    const good = await use(world, instance);
    await world.pass(hour);
    instance.line.hangs = true;
    const answers: number[] = [];
    const ask = async (): Promise<void> => {
      const { status } = await instance.provider.fetch(new Request(`${issuer}/jwks`));
      assert.equal(status, 200);
      answers.push(world.elapsedMs);
    };
    const begun = world.elapsedMs;
    const first = ask();
    await instance.line.hung();
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
    instance.line.hangs = false;
    await world.pass(hour);
    assert.deepEqual(await use(world, instance), good);
  });

  test("hangs while requests go on, and nothing may be used: they wait until the first failure, and no longer", async () => {
    const { world, instance } = await worldWithKeys();
    instance.line.hangs = true;
    const waited: number[] = [];
    const asked: Promise<void>[] = [];
    for (let count = 0; count < 40; count += 1) {
      const begun = world.elapsedMs;
      const response = Promise.resolve(instance.provider.fetch(new Request(`${issuer}/jwks`)));
      asked.push(response.then(({ status }) => void waited.push(status === 503 ? world.elapsedMs - begun : -1)));
      await world.idle();
      await world.pass(second / 2);
    }
    await world.pass(20 * second);
    await Promise.all(asked);
    assert.equal(waited.length, 40);
    assert.ok(waited.every((ms) => ms >= 0));
    assert.ok(waited.filter((ms) => ms === 0).length >= 15, waited.join());
    assert.ok(readsOf(instance) <= 11, `${readsOf(instance)} reads`);
    instance.line.hangs = false;
    await world.pass(30 * second);
    assert.equal((await use(world, instance))[0], 200);
  });
});

test("a process that is frozen between two requests reads before it uses its keys again", async () => {
  const { world } = await worldWithKeys();
  const machine = world.machine();
  const instance = await demand(world, { clock: machine.clock });
  const [, kid] = await use(world, instance);
  // Its read is on its way when it is frozen, and ends long after, when the key has leaked.
  await world.pass(31 * second);
  const held = Promise.withResolvers<void>();
  instance.line.hook = async (_, go) => {
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
  instance.line.hook = undefined;
  held.resolve();
  await new Promise(setImmediate);
  assert.deepEqual(await use(world, instance), [200, await activeIn(world)]);
  assert.notEqual(await activeIn(world), kid);
});

test("a cron that looks only when the store says that a step is due takes each step in time", async () => {
  const world = new World();
  let due: number | undefined;
  const line = world.store.line();
  const store: Register = {
    name: line.name,
    read: (...call) => line.read(...call),
    async write(text, ifVersion, options) {
      const isWritten = await line.write(text, ifVersion, options);
      if (isWritten) due = options?.due;
      return isWritten;
    },
  };
  const { manager } = await world.start({ store, onDemand: true, requireStore: false });
  await world.until(manager.runDueSteps());
  const times = [world.elapsedMs];
  while (world.elapsedMs < 40 * 24 * hour) {
    assert.ok(due !== undefined, "a write says when the next step is due");
    await world.pass(due - world.clock.now());
    await world.until(manager.runDueSteps());
    times.push(world.elapsedMs);
  }
  const { events } = await world.document();
  const signed = events.flatMap(({ type, at }) => (type === "activated" ? [at] : []));
  const gaps = signed.slice(1).map((at, index) => at - (signed[index] as number));
  assert.deepEqual([...new Set(gaps)], [4 * 24 * hour], "keys rotate every four days");
  assert.deepEqual([signed.length, times.length], [11, 30], "ten rotations, and three looks for each");
});

test("a token of a kid that is new here is verified after one more read, and an unknown kid reads once a second", async () => {
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

test("keys for jose and Node: the handle of a signing key, node(), and what is known before the first read", async () => {
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

test(`no cache and no relying party is surprised: three instances, asked at random, for ${days} days`, async () => {
  const { world, instance } = await worldWithKeys();
  const instances = [instance, await demand(world), await demand(world)];
  const targets: { at: number; kids: string[] }[] = [];
  const tokens: { at: number; kid: string }[] = [];
  const kids = new Set<string>();
  const random = randomFrom(1);
  while (world.elapsedMs < days * 24 * hour) {
    await world.pass(Math.floor(random() ** 4 * 5 * hour));
    const one = instances[Math.floor(random() * 3)] as Instance;
    const now = world.elapsedMs;
    const set = await world.until(seen(one));
    while ((targets[0]?.at ?? now) < now - 2 * hour) targets.shift();
    while ((tokens[0]?.at ?? now) < now - hour) tokens.shift();
    targets.push({ at: now, kids: set.kids });
    for (const { kid } of tokens) assert.ok(set.kids.includes(kid), "a token that lives has lost its key");
    for (const { at, kids } of targets)
      assert.ok(kids.includes(set.signs), `a copy of ${(now - at) / 1000} s ago lacks a key`);
    tokens.push({ at: now, kid: set.signs });
    kids.add(set.signs);
  }
  assert.ok(kids.size > days / 5, `${kids.size} keys`);
});
