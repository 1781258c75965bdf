import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { SignerError } from "../../src/base/errors.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import { liveRecords } from "../../src/rotation/rules/records.ts";
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
      [`{${key},use="sig",step="announce"}`]: t0 + (3 * day) / 1000,
    });

    await world.pass(3 * day + second);
    const next = replica.manager.records.at(-1)?.kid;
    const announcedAt = (liveRecords(replica.manager.records).at(-1)?.announcedAt ?? 0) / 1000;
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

  test("a step that waits for a copy is not due, and they tell since when it waits", async () => {
    const world = new World();
    const replica = await world.start();
    await world.change(() => ({ copies: [{ name: "s3://bucket", revision: 1, at: 1 }] }));
    await world.until(replica.manager.rotate());
    await world.idle();
    const held = Object.entries(valuesOf(replica, "jwksd_step_held_up_timestamp_seconds"));
    const record = liveRecords(replica.manager.records).at(-1);
    assert.deepEqual(held, [[`{kid="${record?.kid}",use="sig",step="activate"}`, (record?.announcedAt ?? 0) / 1000]]);
    assert.deepEqual(valuesOf(replica, "jwksd_step_timestamp_seconds"), {});
    await world.change(() => ({ copies: [] }));
    await world.idle();
    assert.deepEqual(valuesOf(replica, "jwksd_step_held_up_timestamp_seconds"), {});
    await world.stop(replica);
  });

  test("calls of the store by result, an outage while it lasts, and both revisions", async () => {
    const world = new World();
    const replica = await world.start({ policy: { maxStaleSeconds: 3600 } });
    const read = (name: string): number | undefined => valuesOf(replica, name)[""];
    assert.deepEqual(
      ["published", "stored"]
        .map((name) => read(`jwksd_revision_${name}`))
        .concat(read("jwksd_ready"), read("jwksd_stale_in_seconds")),
      [1, 1, 1, 3564],
    );
    const before = read("jwksd_store_success_timestamp_seconds");
    world.store.isGone = true;
    await world.pass(2 * hour);
    assert.deepEqual([read("jwksd_ready"), read("jwksd_stale_in_seconds")], [0, 0]);
    assert.deepEqual(valuesOf(replica, "jwksd_failure"), { '{code="ERR_STORE_UNAVAILABLE"}': 1 });
    const calls = valuesOf(replica, "jwksd_store_calls_total");
    assert.equal(calls['{call="write",result="ok"}'], 1);
    assert.ok((calls['{call="presence",result="ERR_STORE_UNAVAILABLE"}'] ?? 0) > 0);
    assert.ok((valuesOf(replica, "jwksd_failures_total")['{code="ERR_STORE_UNAVAILABLE"}'] ?? 0) > 100);
    const attempt = read("jwksd_store_attempt_timestamp_seconds") ?? 0;
    assert.equal(read("jwksd_store_success_timestamp_seconds"), before);
    assert.ok(attempt > world.clock.now() / 1000 - 31, "it is tried every 30 s");

    world.store.isGone = false;
    await world.pass(60 * second);
    assert.deepEqual(valuesOf(replica, "jwksd_failure"), {});
    assert.equal(read("jwksd_ready"), 1);
    assert.equal(read("jwksd_store_success_timestamp_seconds"), read("jwksd_store_attempt_timestamp_seconds"));
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
    await world.pass(3 * day + second);
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
