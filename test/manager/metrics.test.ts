import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { SignerError } from "../../src/base/errors.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import { day, hour, second } from "../rotation/key-records.ts";
import { ecKey } from "../support/keys.ts";
import { samplesOf } from "../support/scrape.ts";
import { type Replica, World } from "./world.ts";

/** The values of one metric, by its labels. */
function valuesOf({ manager }: Pick<Replica, "manager">, name: string): Record<string, number> {
  const all = Object.entries(samplesOf(manager.metrics())).filter(([sample]) => sample.split("{")[0] === name);
  return Object.fromEntries(all.map(([sample, value]) => [sample.slice(name.length), value]));
}

describe("metrics of a manager", () => {
  test("tell keys, when each came to its state, and when the next step is due", async () => {
    const world = new World();
    const replica = await world.start();
    const t0 = world.clock.now() / 1000;
    const [first = ""] = replica.manager.records.map(({ kid }) => kid);
    const key = `kid="${first}"`;
    assert.deepEqual(valuesOf(replica, "jwksd_key_info"), {
      [`{${key},use="sig",alg="ES256",state="active",private_half="store"}`]: 1,
    });
    assert.deepEqual(valuesOf(replica, "jwksd_step_timestamp_seconds"), {
      [`{${key},use="sig",step="announce"}`]: t0 + (89 * day) / 1000,
    });

    await world.pass(89 * day + second);
    const next = replica.manager.records.at(-1)?.kid;
    const announcedAt = (replica.manager.records.at(-1)?.announcedAt ?? 0) / 1000;
    assert.deepEqual(valuesOf(replica, "jwksd_step_timestamp_seconds"), {
      [`{kid="${next}",use="sig",step="activate"}`]: announcedAt + day / 1000,
    });
    await world.pass(day + 31 * second);
    assert.deepEqual(Object.keys(valuesOf(replica, "jwksd_step_timestamp_seconds")), [
      `{kid="${next}",use="sig",step="announce"}`,
      `{${key},use="sig",step="remove"}`,
    ]);
    const retired = valuesOf(replica, "jwksd_key_timestamp_seconds")[`{${key},event="retired"}`];
    assert.equal(retired, announcedAt + day / 1000);
  });

  test("a step that waits for a replica is not due, and they tell since when it waits", async () => {
    const world = new World();
    const line = world.store.line();
    const [replica] = [await world.start(), await world.start({ store: line })];
    await world.pass(89 * day - second);
    line.isGone = true;
    await world.pass(2 * second);
    const held = Object.entries(valuesOf(replica, "jwksd_step_held_up_timestamp_seconds"));
    const { kid, announcedAt = 0 } = replica.manager.records.at(-1) ?? {};
    assert.deepEqual(held, [[`{kid="${kid}",use="sig",step="activate"}`, announcedAt / 1000]]);
    assert.deepEqual(valuesOf(replica, "jwksd_step_timestamp_seconds"), {});
    line.isGone = false;
    await world.pass(5 * 60 * second);
    assert.deepEqual(valuesOf(replica, "jwksd_step_held_up_timestamp_seconds"), {});
  });

  test("calls of the store by result, an outage while it lasts, and both revisions", async () => {
    const world = new World();
    const replica = await world.start({ policy: { leaseSeconds: 3600 } });
    const read = (name: string): number | undefined => valuesOf(replica, name)[""];
    assert.deepEqual(
      [read("jwksd_revision_published"), read("jwksd_revision_stored"), read("jwksd_replica_ready")],
      [1, 1, 1],
    );
    const before = read("jwksd_store_success_timestamp_seconds");
    world.store.isGone = true;
    await world.pass(2 * hour);
    assert.equal(read("jwksd_replica_ready"), 0);
    assert.deepEqual(valuesOf(replica, "jwksd_failure"), { '{code="ERR_STORE_UNAVAILABLE"}': 1 });
    const calls = valuesOf(replica, "jwksd_store_calls_total");
    assert.equal(calls['{call="commit",result="ok"}'], 1);
    assert.ok((calls['{call="renew",result="ERR_STORE_UNAVAILABLE"}'] ?? 0) > 0);
    assert.ok((valuesOf(replica, "jwksd_failures_total")['{code="ERR_STORE_UNAVAILABLE"}'] ?? 0) > 100);
    const attempt = read("jwksd_store_attempt_timestamp_seconds") ?? 0;
    assert.equal(read("jwksd_store_success_timestamp_seconds"), before);
    assert.ok(attempt > world.clock.now() / 1000 - 31, "it is tried every 30 s");

    world.store.isGone = false;
    await world.pass(60 * second);
    assert.deepEqual(valuesOf(replica, "jwksd_failure"), {});
    assert.equal(read("jwksd_replica_ready"), 1);
    assert.equal(read("jwksd_store_success_timestamp_seconds"), read("jwksd_store_attempt_timestamp_seconds"));
  });

  test("a conflict is a call of the store with that result", async () => {
    const world = new World();
    const replicas = await world.until(Promise.all([world.start(), world.start()]));
    const counts = replicas.map(
      (replica) => valuesOf(replica, "jwksd_store_calls_total")['{call="commit",result="ERR_STORE_CONFLICT"}'] ?? 0,
    );
    assert.equal((counts[0] ?? 0) + (counts[1] ?? 0), 1, "of two first keys one is committed");
  });

  test("the next key cannot sign: until it has signed", async () => {
    const world = new World();
    const own = await localSigner(ecKey("a"));
    let failure: SignerError | undefined;
    const external = {
      ...own,
      uri: "pkcs11:object=a",
      async sign(...args: Parameters<typeof own.sign>) {
        if (failure !== undefined) throw failure;
        return own.sign(...args);
      },
      close: async () => {},
    };
    const replica = await world.start();
    const outside = await world.start({
      openSigner: async () => external,
      createSigner: async () => external,
    });
    await world.stop(replica);
    await world.pass(89 * day + second);
    const { kid } = outside.manager.records.at(-1) ?? {};
    assert.equal(
      Object.keys(valuesOf(outside, "jwksd_key_info")).some((labels) => labels.includes('private_half="external"')),
      true,
    );
    failure = new SignerError("ERR_SIGNER_BAD_SIGNATURE", "wrong");
    await world.pass(day + second);
    assert.deepEqual(valuesOf(outside, "jwksd_key_unusable"), {
      [`{kid="${kid}",code="ERR_SIGNER_BAD_SIGNATURE"}`]: 1,
    });
    failure = undefined;
    await world.pass(2 * 60 * second);
    assert.deepEqual(valuesOf(outside, "jwksd_key_unusable"), {});
  });
});
