import assert from "node:assert/strict";
import { test } from "node:test";
import type { Clock } from "../../src/base/clock.ts";
import { SignerError } from "../../src/base/errors.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { ecKey } from "../support/keys.ts";
import { day, hour, second, year } from "../rotation/key-records.ts";
import { World, seen, typesOf } from "./world.ts";

const policy = { rotateEveryDays: 3 };

test("a replica whose clock is off by hours or a year makes nobody early, and does not sign", async () => {
  for (const off of [2 * hour, -2 * hour, year, -year]) {
    const world = new World();
    const wrongClock: Clock = { ...world.clock, now: () => world.clock.now() + off };
    const right = await world.start({ policy });
    const wrong = await world.start({ policy, clock: wrongClock });
    const [first = ""] = (await seen(right)).kids;
    assert.equal((await seen(wrong)).signs, "ERR_SIGNER_STALE", "its tokens would have wrong times");
    // By the clock of the store, the next key is announced after two days, and signs after three.
    await world.passTo(2 * day - 1);
    for (const replica of [right, wrong]) assert.deepEqual((await seen(replica)).kids, [first]);
    await world.passTo(2 * day + second);
    const [, next] = (await seen(right)).kids;
    await world.passTo(3 * day - 1);
    assert.equal((await seen(right)).signs, first);
    await world.passTo(3 * day + 2 * second);
    assert.equal((await seen(right)).signs, next);
    assert.deepEqual((await seen(wrong)).kids, [next, first]);
    for (const replica of [right, wrong]) await world.stop(replica);
  }
});

test("a clock that is set while they wait makes nobody early", async () => {
  for (const by of [30 * 60 * second, 2 * hour, day, -day]) {
    const world = new World();
    const replica = await world.start({ policy });
    await world.passTo(2 * day + hour);
    const [first, next] = (await seen(replica)).kids;
    world.setBy(by);
    await world.passTo(3 * day - second);
    await replica.manager.decryptionKey({ kid: "looks at the store" }).catch(() => {});
    assert.equal((await seen(replica)).signs, first, `${by}`);
    await world.passTo(5 * day);
    await replica.manager.decryptionKey({ kid: "looks at the store" }).catch(() => {});
    assert.ok([next].includes((await seen(replica)).kids[0]), `${by}`);
    await world.stop(replica);
  }
});

test(
  "a key that could not sign for hours takes over when it can, and is not announced again",
  { timeout: 60_000 },
  async () => {
    const world = new World();
    let made = 0;
    const broken = { isBroken: false };
    const open = async (uri: string): Promise<ExternalSigner> => {
      const signer = await localSigner(ecKey(uri));
      return {
        ...signer,
        uri,
        async sign(request) {
          if (broken.isBroken) throw new Error("the module is gone");
          return signer.sign(request);
        },
        close: async () => {},
      };
    };
    const replica = await world.start({ policy, createSigner: () => open(`test:${(made += 1)}`), openSigner: open });
    await world.passTo(3 * day - hour);
    const [first, next] = (await seen(replica)).kids;
    broken.isBroken = true;
    await world.passTo(3 * day + 5 * hour);
    assert.equal(replica.manager.keysets.keyset[0]?.kid, first);
    broken.isBroken = false;
    await world.pass(61 * second);
    assert.equal((await seen(replica)).signs, next);
    await world.stop(replica);
  },
);

const openFirst = async (): Promise<ExternalSigner> => ({
  ...(await localSigner(ecKey("test:1"))),
  uri: "test:1",
  close: async () => {},
});

test(
  "a key whose signatures are wrong is not announced, and reported as one that nothing uses",
  { timeout: 60_000 },
  async () => {
    const world = new World();
    let made = 0;
    const create = async (): Promise<ExternalSigner> => {
      made += 1;
      const signer = await localSigner(ecKey(`test:${made}`));
      const other = await localSigner(ecKey("another"));
      // From the second key on, the module signs with a key that is not the published one.
      return {
        ...(made === 1 ? signer : other),
        publicKey: signer.publicKey,
        uri: `test:${made}`,
        close: async () => {},
      };
    };
    const replica = await world.start({ policy, createSigner: create, openSigner: openFirst });
    await world.passTo(2 * day + hour);
    assert.ok(made > 1);
    assert.equal(replica.manager.records.length, 1);
    const orphans = replica.told.filter(({ type }) => type === "orphaned");
    assert.equal(orphans.length, made - 1);
    await world.stop(replica);
  },
);

const openSigner = (): Promise<ExternalSigner> =>
  Promise.reject(new SignerError("ERR_SIGNER_UNAVAILABLE", "the module is gone"));

test("a process that only publishes starts without the HSM of its active key; one that signs does not", async () => {
  const world = new World();
  const first = await world.start({ policy, createSigner: openFirst, openSigner: openFirst });
  const { kids } = await seen(first);
  await world.stop(first);
  await assert.rejects(world.start({ policy, openSigner }), { code: "ERR_SIGNER_UNAVAILABLE" });
  const publisher = await world.start({ policy, openSigner, signs: false });
  assert.deepEqual(
    publisher.manager.keysets.keyset.map(({ kid }) => kid),
    kids,
  );
  assert.deepEqual(typesOf(publisher.told), ["unopened"]);
  await world.stop(publisher);
});
