// The policy is in the store: options seed an empty one, and a command changes it for all processes.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { JwksdError } from "../../src/base/errors.ts";
import type { RotationPolicyOptions } from "../../src/rotation/rules/policy.ts";
import { isLive } from "../../src/rotation/rules/records.ts";
import { day, hour, second } from "../rotation/key-records.ts";
import { type Replica, World, seen, staleMs } from "./world.ts";

const lifetime = ({ provider }: Replica, lifetimeSeconds: number): Promise<string> =>
  provider.sign({ sub: "a" }, { lifetimeSeconds }).then(
    () => "signed",
    (error: JwksdError) => error.code,
  );

test("options seed an empty store, and what differs later is told at each start and changes nothing", async () => {
  const world = new World();
  const first = await world.start({ policy: { rotateEveryDays: 30, maxTokenLifetimeSeconds: 600 } });
  const { policy, revision } = await world.document();
  assert.deepEqual(
    [policy.rotateEveryDays, policy.maxTokenLifetimeSeconds, policy.maxStaleSeconds],
    [30, 600, staleMs / second],
  );
  assert.ok(first.told.every(({ type }) => type !== "policy-differs"));
  for (const given of [
    { rotateEveryDays: 6 },
    { rotateEveryDays: null, clockSkewSeconds: 60 },
  ] satisfies RotationPolicyOptions[]) {
    const other = await world.start({ policy: given });
    const told = other.told.filter(({ type }) => type === "policy-differs");
    assert.deepEqual(told, [
      {
        type: "policy-differs",
        given: { maxStaleSeconds: staleMs / second, ...given },
        stored: policy,
      },
    ]);
    assert.deepEqual([other.manager.policy, (await world.document()).revision], [policy, revision]);
    await world.stop(other);
  }
  const same = await world.start({ policy: { rotateEveryDays: 30 } });
  assert.deepEqual(same.told, []);
  await world.stop(first, same);
});

test("a command changes it in all processes, also for providers that run, with an event", async () => {
  const world = new World();
  const [one, other] = [await world.start(), await world.start()];
  assert.equal(await lifetime(other, 3601), "ERR_CLAIMS_INVALID");
  await world.run(one, { type: "policy", policy: { maxTokenLifetimeSeconds: 7200, rotateEveryDays: 6 } });
  assert.deepEqual([await lifetime(other, 7200), await lifetime(other, 7201)], ["signed", "ERR_CLAIMS_INVALID"]);
  assert.equal(other.manager.maxTokenLifetimeSeconds, 7200);
  const [event] = other.told.flatMap((event) => (event.type === "changed" ? event.events : []));
  assert.deepEqual(
    [event?.type, event?.reason],
    ["policy", "rotateEveryDays 4 -> 6, maxTokenLifetimeSeconds 3600 -> 7200"],
  );
  await assert.rejects(world.run(one, { type: "policy", policy: { announceForSeconds: 60 } }), {
    code: "ERR_POLICY_INVALID",
  });
  await world.passTo(5 * day);
  assert.equal((await seen(other)).kids.length, 2);
  await world.stop(one, other);
});

test("the longest bounds count for keys under way, and those of the policy for later ones", async () => {
  const world = new World();
  const replica = await world.start();
  await world.until(replica.manager.rotate());
  const { kids } = await seen(replica);
  await world.run(replica, {
    type: "policy",
    policy: { maxStaleSeconds: 600, announceForSeconds: 8 * (hour / second), maxTokenLifetimeSeconds: 60 },
  });
  const boundsOf = (index: number): unknown => {
    const record = replica.manager.records[index];
    if (record === undefined || !isLive(record)) return undefined;
    return [record.announceForSeconds, record.retireForSeconds, record.maxStaleSeconds];
  };
  const retire = staleMs / second + 3600 + 600;
  assert.deepEqual(
    [boundsOf(0), boundsOf(1)],
    [
      [undefined, retire, staleMs / second],
      [86_400, retire, staleMs / second],
    ],
  );
  await world.passTo(day - 1);
  assert.equal((await seen(replica)).signs, kids[0]);
  await world.pass(1);
  assert.equal((await seen(replica)).signs, kids[1]);
  await world.pass(retire * second - 1);
  assert.equal((await seen(replica)).kids.length, 2, "tokens of one hour may be under way");
  await world.pass(1);
  assert.deepEqual((await seen(replica)).kids, [kids[1]]);
  await world.until(replica.manager.rotate());
  assert.deepEqual(boundsOf(2), [staleMs / second + 14_400 + 300, staleMs / second + 60 + 600, 600]);
  await world.stop(replica);
});
