import assert from "node:assert/strict";
import { test } from "node:test";
import type { Clock } from "../../src/clock.ts";
import { SignerError } from "../../src/errors.ts";
import { localSigner } from "../../src/signer/local.ts";
import type { ExternalSigner } from "../../src/signer/signer.ts";
import { ecKey } from "../support/keys.ts";
import { day, hour, second, year } from "../rotation/key-records.ts";
import { World, seen, typesOf } from "./world.ts";

const policy = { rotateEveryDays: 3 };

test(
  "replicas whose clocks are a year apart do not start each other's waits again without end",
  { timeout: 60_000 },
  async () => {
    const world = new World();
    const ahead: Clock = {
      now: () => world.clock.now() + year,
      setTimer: (callback, ms) => world.clock.setTimer(callback, ms),
    };
    const right = await world.start({ policy });
    const wrong = await world.start({ policy, clock: ahead });
    const replicas = [right, wrong];
    const [first = ""] = (await seen(right)).kids;
    // The one that is ahead has announced the next key at once; each of them has started its wait again, once.
    await world.pass(hour);
    assert.ok(world.store.commits < 10, `${world.store.commits} commits`);
    const [, next = ""] = (await seen(right)).kids;
    // It signs when it has been announced for long enough by true time, not before.
    await world.passTo(day - hour);
    for (const replica of replicas) assert.equal((await seen(replica)).signs, first);
    assert.notEqual(next, "");
    // Whether it gets through depends on who is quicker; that they wake each other up does not.
    await world.passTo(30 * day);
    assert.ok(world.store.commits < 200, `${world.store.commits} commits`);
    for (const replica of replicas) await world.stop(replica);
  },
);

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
    assert.equal(replica.manager.options.keyset[0]?.keyId, first);
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
    publisher.manager.options.keyset.map(({ keyId }) => keyId),
    kids,
  );
  assert.deepEqual(typesOf(publisher.told), ["unopened"]);
  await world.stop(publisher);
});
