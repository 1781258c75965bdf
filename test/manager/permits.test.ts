// Until when a handle of `signingKey` may be used, and what it says of time.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeJwt } from "jose";
import type { JwksdError } from "../../src/base/errors.ts";
import type { SigningKey } from "../../src/library/provider/token-signer.ts";
import { hour, second } from "../rotation/key-records.ts";
import { encode } from "../token/compact.ts";
import { Module } from "./module.ts";
import { type Replica, World, issuer, seen, staleMs, usableMs } from "./world.ts";

/** Signs a token without times of its own with a handle: "signed", or the code of the error. */
const use = ({ kid, sign }: SigningKey): Promise<string> =>
  sign(Buffer.from(`${encode({ alg: "ES256", kid })}.${encode({ iss: issuer })}`), { lifetimeSeconds: 60 }).then(
    () => "signed",
    (error: JwksdError) => error.code,
  );
const stale = "ERR_SIGNER_STALE";

/** A replica, and a handle that it gave. */
async function start(policy = {}) {
  const world = new World();
  const replica = await world.start({ policy });
  await world.pass(hour);
  return { world, replica, handle: await replica.provider.signingKey() };
}

describe("a handle", () => {
  test("may be used until what its process had read is F old, though its key is replaced", async () => {
    const { world, replica, handle } = await start();
    await world.until(replica.manager.rotate({ now: true }));
    // Words go on. That which this handle goes by was had at the beginning.
    await world.passTo(usableMs - 1);
    assert.equal(await use(handle), "signed");
    await world.pass(1);
    assert.deepEqual([await use(handle), await use(await replica.provider.signingKey())], [stale, "signed"]);
    await world.stop(replica);
  });

  test("goes by the F that its process had read, and a shorter one holds from the next read on", async () => {
    const { world, replica, handle } = await start();
    await world.run(replica, { type: "policy", policy: { maxStaleSeconds: 600 } });
    // The change of F makes a word due.
    const next = await replica.provider.signingKey();
    world.store.isGone = true;
    await world.pass(594 * second - 1);
    assert.equal(await use(next), "signed");
    await world.pass(1);
    assert.deepEqual([await use(next), await use(handle)], [stale, "signed"]);
    world.store.isGone = false;
    const [record] = replica.manager.records;
    assert.equal(record !== undefined && "maxStaleSeconds" in record && record.maxStaleSeconds, staleMs / second);
    await world.stop(replica);
  });

  for (const [name, end] of [
    ["revoked", (world: World, { manager }: Replica, kid: string) => world.until(manager.revoke(kid))],
    ["removed", (world: World, { manager }: Replica, kid: string) => world.until(manager.remove(kid, { force: true }))],
  ] as const) {
    test(`ends at once when its key is ${name}, by any process, though a subscriber takes nothing`, async () => {
      const { world, replica, handle } = await start();
      const other = await world.start();
      await world.until(other.manager.rotate({ now: true }));
      await world.until(
        replica.manager.subscribe({ update: () => Promise.reject(new Error("broken")) }).catch(() => {}),
      );
      assert.equal(await use(handle), "signed");
      await end(world, other, handle.kid);
      await world.idle();
      assert.equal(await use(handle), stale);
      await world.stop(replica, other);
    });
  }

  test("ends when the manager is closed", async () => {
    const { world, replica, handle } = await start();
    await world.stop(replica);
    assert.deepEqual([await use(handle), (await seen(replica)).signs], [stale, stale]);
  });

  test("of a process whose clock was set wrong ends at once", async () => {
    const world = new World();
    const machine = world.machine();
    const replica = await world.start({ clock: machine.clock });
    const handle = await replica.provider.signingKey();
    machine.offMs = 301 * second;
    assert.equal(await use(handle), stale);
    machine.offMs = 0;
    assert.equal(await use(handle), "signed");
    await world.stop(replica);
  });
});

/** A replica whose signatures are there when that is called. */
async function slow() {
  const world = new World();
  const module = new Module();
  const choice = module.choice();
  let held: Promise<void> | undefined;
  const openSigner: typeof choice.openSigner = async (uri, ...rest) => {
    const signer = await choice.openSigner(uri, ...rest);
    return { ...signer, sign: async (input, ...rest) => (await held, signer.sign(input, ...rest)) };
  };
  const replica = await world.start({ ...choice, openSigner, policy: { maxStaleSeconds: 1_800 } });
  return { world, replica, hold: (until: Promise<void>) => (held = until) };
}

describe("a signer that is slow", () => {
  for (const [name, ms, expected] of [
    ["before", -1, "signed"],
    ["after", 0, stale],
  ] as const) {
    test(`is there just ${name} its process is stale: ${expected}`, async () => {
      const { world, replica, hold } = await slow();
      world.store.isGone = true;
      await world.passTo(1_782 * second - second);
      const { promise, resolve } = Promise.withResolvers<void>();
      hold(promise);
      const signing = use(await replica.provider.signingKey());
      await world.passTo(1_782 * second + ms);
      resolve();
      assert.equal(await signing, expected);
      world.store.isGone = false;
      await world.stop(replica);
    });
  }

  test("gives a token the times of its beginning, when it was checked", async () => {
    const { world, replica, hold } = await slow();
    const { promise, resolve } = Promise.withResolvers<void>();
    hold(promise);
    const began = Math.floor(world.clock.now() / 1000);
    const signing = replica.provider.sign({ sub: "a" }, { lifetimeSeconds: 60 });
    await world.pass(4 * second);
    resolve();
    const { iat, exp } = decodeJwt(await signing);
    assert.deepEqual([iat, exp], [began, began + 60]);
    await world.stop(replica);
  });
});
