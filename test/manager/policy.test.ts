// The policy is in the store: options set it in an empty store, and a command changes it for all processes.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { JwksdError } from "../../src/base/errors.ts";
import type { RotationPolicyOptions } from "../../src/rotation/rules/policy.ts";
import { day, second } from "../rules/key-records.ts";
import { type Replica, World, seen, staleMs } from "./world.ts";

const lifetime = ({ provider }: Replica, lifetimeSeconds: number): Promise<string> =>
  provider.sign({ sub: "a" }, { lifetimeSeconds }).then(
    () => "signed",
    (error: JwksdError) => error.code,
  );

test("options set an empty store's policy; later, options that differ from the policy are reported at each start and change nothing", async () => {
  const world = new World();
  const first = await world.start({ initialPolicy: { rotateEveryDays: 30, maxTokenLifetimeSeconds: 600 } });
  const { policy, revision } = await world.document();
  assert.deepEqual(
    [policy.rotateEveryDays, policy.maxTokenLifetimeSeconds, policy.maxStaleSeconds],
    [30, 600, staleMs / second],
  );
  assert.ok(first.events.every(({ type }) => type !== "policy-differs"));
  for (const given of [
    { rotateEveryDays: 6 },
    { rotateEveryDays: null, clockSkewSeconds: 60 },
  ] satisfies RotationPolicyOptions[]) {
    const other = await world.start({ initialPolicy: given });
    const reported = other.events.filter(({ type }) => type === "policy-differs");
    assert.deepEqual(reported, [
      {
        type: "policy-differs",
        given: { maxStaleSeconds: staleMs / second, ...given },
        stored: policy,
      },
    ]);
    assert.deepEqual([other.manager.policy, (await world.document()).revision], [policy, revision]);
    await world.stop(other);
  }
  const same = await world.start({ initialPolicy: { rotateEveryDays: 30 } });
  assert.deepEqual(same.events, []);
  await world.stop(first, same);
});

test("a command changes the policy in all running processes and emits an event", async () => {
  const world = new World();
  const [one, other] = [await world.start(), await world.start()];
  assert.equal(await lifetime(other, 3601), "ERR_CLAIMS_INVALID");
  await world.run(one, { type: "policy", policy: { maxTokenLifetimeSeconds: 7200, rotateEveryDays: 6 } });
  assert.deepEqual([await lifetime(other, 7200), await lifetime(other, 7201)], ["signed", "ERR_CLAIMS_INVALID"]);
  assert.equal(other.manager.maxTokenLifetimeSeconds, 7200);
  const [event] = other.events.flatMap((event) => (event.type === "changed" ? event.events : []));
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
