import assert from "node:assert/strict";
import type { JwksdError } from "../base/errors.ts";
import type { KeyStore, Lease } from "../rotation/store/store.ts";
import { type StoreTest, committed, eventOf, hardKids, leasesOf, longMs, refused, runOut, whole } from "./records.ts";

const hundredYearsMs = 100 * 365.25 * 86_400_000;

/** Leases, and commits that rely on them. `rounds` are those of a race. */
export function checkLeases(test: StoreTest, rounds: number): void {
  test("its clock goes by the machine's, or by its own, in milliseconds", async (store, another) => {
    const [first, second] = [await store.load(), await (await another()).load()];
    assert.ok(first.now > 1_700_000_000_000 && first.now < 8.64e15, String(first.now));
    assert.ok(second.now >= first.now && second.now - first.now < 60_000);
  });

  test("a lease is seen by every handle, in the order of joining, until it is ended", async (store, another) => {
    const other = await another();
    await store.join({ id: "b:1", name: "replica 1, Zürich" }, longMs);
    await other.join({ id: "a.2", name: "🔑" }, longMs);
    const kids = hardKids.slice(0, 16);
    assert.equal(await other.renew({ id: "b:1", publishes: 7, signsWith: kids }, longMs), 0);
    const expected = [
      { id: "b:1", name: "replica 1, Zürich", publishes: 7, signsWith: kids },
      { id: "a.2", name: "🔑", publishes: 0, signsWith: [] },
    ];
    for (const handle of [store, other, await another()]) {
      assert.deepEqual(await leasesOf(handle), expected);
      const { now, leases } = await handle.load();
      for (const { until } of leases) assert.ok(until > now && until <= now + longMs, `${until} at ${now}`);
      assert.deepEqual(
        leases.map(({ serial, forMs }) => [serial, forMs]),
        [
          [1, longMs],
          [0, longMs],
        ],
      );
    }
    await other.leave("b:1");
    await other.leave("b:1");
    await store.leave("never there");
    assert.deepEqual(await leasesOf(store), expected.slice(1));
    for (const handle of [store, other]) assert.deepEqual((await handle.load()).ended, ["b:1"]);
    // A clock that can be set ends none.
    await runOut(store, "a.2");
    assert.deepEqual(await leasesOf(other), expected.slice(1));
    await store.leave("a.2");
    assert.deepEqual([await leasesOf(other), (await other.load()).ended.toSorted()], [[], ["a.2", "b:1"]]);
  });

  test("a lease keeps the settings that its replica joined with", async (store, another) => {
    const settings = { wrappingKeys: hardKids.filter((kid) => kid.isWellFormed()), policy: { rotateEveryDays: 0.5 } };
    await store.join({ id: "a", name: "a", settings }, longMs);
    await store.join({ id: "b", name: "b" }, longMs);
    await store.renew({ id: "a", publishes: 1, signsWith: [] }, longMs);
    for (const handle of [store, await another()]) {
      assert.deepEqual(
        (await handle.load()).leases.map((lease) => lease.settings),
        [settings, undefined],
      );
    }
  });

  test("a lease is ended by somebody else only if it has not been renewed since it was seen", async (store, another) => {
    await store.join({ id: "a", name: "a" }, longMs);
    await store.renew({ id: "a", publishes: 1, signsWith: [] }, longMs, { serial: 7 });
    const other = await another();
    for (const ifSerial of [0, 6, 8]) await other.leave("a", { ifSerial });
    assert.deepEqual([(await store.load()).leases.length, (await store.load()).ended], [1, []]);
    await other.leave("a", { ifSerial: 7 });
    assert.deepEqual([await leasesOf(store), (await store.load()).ended], [[], ["a"]]);
  });

  test("of a renewal and somebody who ends the lease as it was before, one comes first", async (store, another) => {
    const other = await another();
    for (let round = 0; round < rounds / 4; round += 1) {
      const id = `${round}`;
      await store.join({ id, name: "a" }, longMs);
      const renewal = other.renew({ id, publishes: 1, signsWith: [] }, longMs, { serial: 1 }).then(
        () => "renewed",
        (error: JwksdError) => error.code,
      );
      await store.leave(id, { ifSerial: 0 });
      const isThere = async (): Promise<boolean> => (await leasesOf(store)).some((lease) => lease.id === id);
      assert.equal(await renewal, (await isThere()) ? "renewed" : "ERR_LEASE_ENDED", `round ${round}`);
    }
  });

  test("a renewal moves the end, both ways", async (store) => {
    await store.join({ id: "a", name: "a" }, 60_000);
    // A copy that is served without a process has a lease for a hundred years.
    for (const forMs of [longMs, hundredYearsMs, 30_000.5]) {
      const { now } = await store.load();
      await store.renew({ id: "a", publishes: 0, signsWith: [] }, forMs);
      const { until, forMs: lasts } = (await store.load()).leases[0] as Lease;
      assert.equal(lasts, Math.ceil(forMs));
      assert.ok(until >= now + forMs && until <= now + forMs + 20_000, `${until - now}`);
    }
  });

  test("nobody joins under an id that is there, and that changes nothing", async (store, another) => {
    await store.join({ id: "a", name: "first" }, longMs);
    await refused((await another()).join({ id: "a", name: "second" }, longMs), "ERR_STORE_CONFLICT", true);
    assert.deepEqual(await leasesOf(store), [{ id: "a", name: "first", publishes: 0, signsWith: [] }]);
  });

  test("what has ended is never renewed", async (store) => {
    const renew = (id: string) => store.renew({ id, publishes: 1, signsWith: [] }, longMs);
    await refused(renew("never-there"), "ERR_LEASE_ENDED", false);
    await store.join({ id: "left", name: "left" }, longMs);
    await store.leave("left");
    await refused(renew("left"), "ERR_LEASE_ENDED", false);
    await refused(store.join({ id: "left", name: "left" }, longMs), "ERR_STORE_CONFLICT", true);
    assert.deepEqual((await store.load()).leases, []);
  });

  test("a renewal that was given up and arrives late changes nothing", async (store) => {
    await store.join({ id: "a", name: "a" }, longMs);
    const renew = (publishes: number, serial: number) =>
      store.renew({ id: "a", publishes, signsWith: [] }, longMs, { serial });
    await renew(1, 1);
    await renew(3, 3);
    await refused(renew(2, 2), "ERR_LEASE_ENDED", false);
    assert.deepEqual(await leasesOf(store), [{ id: "a", name: "a", publishes: 3, signsWith: [] }]);
    // A replica that did not get the answer reports the same revision again.
    await renew(3, 3);
    await renew(4, 4);
    assert.equal((await leasesOf(store))[0]?.publishes, 4);
  });

  test("a renewal on the condition of a revision", async (store) => {
    await store.join({ id: "a", name: "a" }, longMs);
    await store.commit(0, [whole], []);
    const lease = { id: "a", publishes: 1, signsWith: ["whole"] };
    for (const ifRevision of [0, 2]) {
      await refused(store.renew(lease, longMs, { ifRevision }), "ERR_STORE_CONFLICT", true);
      assert.deepEqual(await leasesOf(store), [{ id: "a", name: "a", publishes: 0, signsWith: [] }]);
    }
    assert.equal(await store.renew(lease, longMs, { ifRevision: 1 }), 1);
    assert.deepEqual(await leasesOf(store), [{ ...lease, name: "a" }]);
    assert.deepEqual(await committed(store), { revision: 1, records: [whole] });
  });

  const movements: [name: string, move: (other: KeyStore) => Promise<unknown>, conflicts: boolean][] = [
    ["nothing happened", async () => {}, false],
    ["one was renewed as it was", (other) => other.renew({ id: "a", publishes: 1, signsWith: ["x"] }, 60_000), false],
    ["one publishes more", (other) => other.renew({ id: "a", publishes: 2, signsWith: ["x"] }, longMs), true],
    ["one signs with more", (other) => other.renew({ id: "a", publishes: 1, signsWith: ["x", "y"] }, longMs), true],
    ["one signs with less", (other) => other.renew({ id: "a", publishes: 1, signsWith: [] }, longMs), true],
    ["one joined", (other) => other.join({ id: "c", name: "c" }, longMs), true],
    ["one left", (other) => other.leave("b"), true],
    ["the time of one has passed", (other) => runOut(other, "b"), false],
    [
      "one left, and another one joined",
      async (other) => (await other.leave("b"), await other.join({ id: "c", name: "c" }, longMs)),
      true,
    ],
  ];
  for (const [name, move, conflicts] of movements) {
    test(`a commit that relies on leases, after ${name}: ${conflicts ? "a conflict" : "it is written"}`, async (store, another) => {
      const other = await another();
      await store.join({ id: "a", name: "a" }, longMs);
      await store.join({ id: "b", name: "b" }, longMs);
      await store.renew({ id: "a", publishes: 1, signsWith: ["x"] }, longMs);
      const { leases } = await store.load();
      await move(other);
      const after = await leasesOf(other);
      const commit = store.commit(0, [whole], [eventOf("whole")], { leases });
      if (conflicts) await refused(commit, "ERR_STORE_CONFLICT", true);
      else assert.equal(await commit, 1);
      const { revision, records } = await other.load();
      assert.deepEqual([revision, records.length], conflicts ? [0, 0] : [1, 1]);
      assert.equal((await other.events()).length, conflicts ? 0 : 1);
      assert.deepEqual(await leasesOf(other), after);
      // A commit that relies on no leases is no conflict when leases change.
      assert.equal(await store.commit(revision, [whole], []), revision + 1);
    });
  }

  test("of a commit that relies on leases and a renewal that race, the commit knows, or the renewal sees it", async (store, another) => {
    const other = await another();
    await store.join({ id: "a", name: "a" }, longMs);
    for (let round = 0; round < rounds / 4; round += 1) {
      const { revision, leases } = await store.load();
      const lease = { id: "a", publishes: round + 1, signsWith: [`${round}`] };
      const [commit, renewal] = await Promise.allSettled([
        store.commit(revision, [], [], { leases }),
        other.renew(lease, longMs, { ifRevision: revision }),
      ]);
      const outcomes = [commit, renewal].map((outcome) =>
        outcome.status === "fulfilled" ? "done" : (outcome.reason as JwksdError).code,
      );
      assert.deepEqual(outcomes.toSorted(), ["ERR_STORE_CONFLICT", "done"], `round ${round}`);
    }
  });

  const wrongLeases: [name: string, attempt: (store: KeyStore) => Promise<unknown>][] = [
    ["no id", (store) => store.join({ id: "", name: "a" }, longMs)],
    ["a long id", (store) => store.join({ id: "a".repeat(65), name: "a" }, longMs)],
    ["an id that is not plain", (store) => store.join({ id: "a b", name: "a" }, longMs)],
    ["no name", (store) => store.join({ id: "a", name: "" }, longMs)],
    ["a long name", (store) => store.join({ id: "a", name: "a".repeat(256) }, longMs)],
    ["long settings", (store) => store.join({ id: "a", name: "a", settings: { a: "a".repeat(20_000) } }, longMs)],
    ["a name that a terminal obeys", (store) => store.join({ id: "a", name: "a[2J" }, longMs)],
    ["no time", (store) => store.join({ id: "a", name: "a" }, 0)],
    ["a time that is none", (store) => store.join({ id: "a", name: "a" }, Number.NaN)],
    ["a revision that is none", (store) => store.renew({ id: "b", publishes: 0.5, signsWith: [] }, longMs)],
    ["a negative revision", (store) => store.renew({ id: "b", publishes: -1, signsWith: [] }, longMs)],
    ["many kids", (store) => store.renew({ id: "b", publishes: 0, signsWith: Array<string>(17).fill("a") }, longMs)],
    ["a long kid", (store) => store.renew({ id: "b", publishes: 0, signsWith: ["a".repeat(4_097)] }, longMs)],
    ["an empty kid", (store) => store.renew({ id: "b", publishes: 0, signsWith: [""] }, longMs)],
    ["an infinite time", (store) => store.renew({ id: "b", publishes: 0, signsWith: [] }, Infinity)],
  ];
  test("a lease that breaks a rule is refused, and changes nothing", async (store) => {
    await store.join({ id: "b", name: "b" }, longMs);
    const before = await leasesOf(store);
    for (const [name, attempt] of wrongLeases) {
      await assert.rejects(async () => attempt(store), { name: "ConfigError", code: "ERR_OPTION_INVALID" }, name);
    }
    assert.deepEqual(await leasesOf(store), before);
  });
}
