import assert from "node:assert/strict";
import type { JwksdError } from "../base/errors.ts";
import type { KeyRecord, KeyStore } from "../rotation/store/store.ts";
import { type StoreTest, committed, encryption, eventOf, hardKids, refused, tombstone, whole } from "./records.ts";

/** Commits, and what handles load after them. `rounds` are those of a race. */
export function checkCommits(test: StoreTest, rounds: number): void {
  test("begins empty, at revision 0", async (store) => {
    assert.deepEqual(await committed(store), { revision: 0, records: [] });
    assert.deepEqual(await store.events(), []);
  });

  test("a commit gives the next revision, and what every handle loads", async (store, another) => {
    const earlier = await another();
    assert.equal(await store.commit(0, [whole], [eventOf("whole")]), 1);
    assert.equal(await store.commit(1, [whole], []), 2, "also one that changes nothing");
    for (const handle of [store, earlier, await another()]) {
      assert.deepEqual(await committed(handle), { revision: 2, records: [whole] });
      assert.equal((await handle.events()).length, 1);
    }
  });

  test("the mac of a commit is what every handle loads; a commit without one takes it away", async (store, another) => {
    const other = await another();
    for (const [revision, mac] of ["a", "b.c", undefined, "e30.🔑"].entries()) {
      await store.commit(revision, [whole], [], { mac });
      const expected = { revision: revision + 1, records: [whole], ...(mac !== undefined && { mac }) };
      for (const handle of [store, other]) assert.deepEqual(await committed(handle), expected);
    }
    await refused(store.commit(0, [whole], [], { mac: "late" }), "ERR_STORE_CONFLICT", true);
    assert.equal((await store.load()).mac, "e30.🔑");
  });

  test("records come back equal, in the order in which they were added", async (store) => {
    const last = tombstone("0");
    await store.commit(0, [whole, tombstone("z")], []);
    await store.commit(1, [last, tombstone("z"), encryption, { ...whole, state: "retiring", retiredAt: 4 }], []);
    assert.deepEqual((await store.load()).records, [
      { ...whole, state: "retiring", retiredAt: 4 },
      tombstone("z"),
      last,
      encryption,
    ]);
  });

  test("a member that a record no longer has is gone", async (store) => {
    const { privateHalf: _gone, successorLease: _goneToo, ...bare } = whole;
    await store.commit(0, [whole], []);
    await store.commit(1, [bare], []);
    assert.deepEqual((await store.load()).records, [bare]);
  });

  test("kids are compared character by character", async (store) => {
    const records = hardKids.map(tombstone);
    await store.commit(
      0,
      records,
      hardKids.map((kid) => eventOf(kid, kid)),
    );
    await store.commit(1, records, []);
    assert.deepEqual((await store.load()).records, records);
    assert.deepEqual(
      (await store.events()).map(({ kid, reason }) => [kid, reason]),
      hardKids.map((kid) => [kid, kid]).toReversed(),
    );
    for (const kid of hardKids) {
      await refused(
        store.commit(
          2,
          records.filter((record) => record.kid !== kid),
          [],
        ),
        "ERR_RECORDS_INVALID",
        false,
      );
    }
  });

  test("a conflict changes nothing", async (store) => {
    await store.commit(0, [tombstone("a")], [eventOf("a")]);
    for (const wrong of [0, 2]) {
      await refused(store.commit(wrong, [whole, tombstone("a")], [eventOf("whole")]), "ERR_STORE_CONFLICT", true);
    }
    assert.deepEqual(await committed(store), { revision: 1, records: [tombstone("a")] });
    assert.equal((await store.events()).length, 1);
  });

  test("a record is never forgotten, and none is there twice", async (store, another) => {
    await store.commit(0, [tombstone("a"), tombstone("b")], []);
    const invalid = [[], [tombstone("b")], [tombstone("b"), whole], [whole, tombstone("a"), tombstone("b"), whole]];
    // As they were loaded, too.
    const [a = whole, b = whole] = (await store.load()).records;
    const same = [[a], [b], [b, b], [b, a, a], [a, b, a], [a, b, tombstone("a")], [tombstone("b"), b]];
    for (const records of [...invalid, ...same]) {
      await refused(store.commit(1, records, [eventOf("whole")]), "ERR_RECORDS_INVALID", false);
    }
    assert.deepEqual(await committed(store), { revision: 1, records: [tombstone("a"), tombstone("b")] });
    assert.deepEqual(await store.events(), []);
    await store.commit(1, [b, whole, a], []);
    for (const handle of [store, await another()]) assert.deepEqual((await handle.load()).records, [a, b, whole]);
  });

  test("events are numbered from 1, newest first, in pages", async (store) => {
    const reasons = Array.from({ length: 7 }, (_, index) => `reason ${index + 1}`);
    const all = reasons.map((reason, index) => ({ ...eventOf("a", reason), number: index + 1 })).toReversed();
    await store.commit(
      0,
      [],
      reasons.slice(0, 3).map((reason) => eventOf("a", reason)),
    );
    await store.commit(1, [], []);
    await refused(store.commit(1, [], [eventOf("a", "lost")]), "ERR_STORE_CONFLICT", true);
    await store.commit(
      2,
      [],
      reasons.slice(3).map((reason) => eventOf("a", reason)),
    );
    const pages: [Parameters<KeyStore["events"]>[0], number, number][] = [
      [undefined, 0, 7],
      [{}, 0, 7],
      [{ limit: 3 }, 0, 3],
      [{ limit: 3, before: 5 }, 3, 6],
      [{ limit: 3, before: 2 }, 6, 7],
      [{ before: 3 }, 5, 7],
      [{ before: 1 }, 7, 7],
      [{ limit: 0 }, 0, 0],
      [{ limit: 100, before: 100 }, 0, 7],
      [{ limit: Infinity, before: Infinity }, 0, 7],
      [{ limit: undefined, before: undefined, signal: undefined }, 0, 7],
    ];
    for (const [options, from, to] of pages) {
      assert.deepEqual(await store.events(options), all.slice(from, to), JSON.stringify(options));
    }
  });

  test("nothing is shared with callers", async (store) => {
    const record = structuredClone(whole) as { kid: string; publicJwk: { x: string } };
    const event = { ...eventOf("whole") };
    await store.commit(0, [record as unknown as KeyRecord], [event]);
    record.publicJwk.x = "changed";
    event.reason = "changed";
    const { records } = await store.load();
    const events = await store.events();
    assert.deepEqual(records, [whole]);
    assert.deepEqual(events, [{ ...eventOf("whole"), number: 1 }]);
    await store.commit(1, [encryption, { ...whole, endedAt: 5 }], []);
    assert.deepEqual(records, [whole], "what was loaded stays as it was");
    await store.commit(2, [whole, encryption], []);
    Reflect.set((records[0] as KeyRecord).publicJwk, "x", "changed");
    (events[0] as { reason: string }).reason = "changed";
    assert.deepEqual((await store.load()).records, [whole, encryption]);
    assert.equal((await store.events())[0]?.reason, "planned");
  });

  test(`of two handles that race, exactly one wins each of ${rounds} rounds`, async (store, another) => {
    const racers = [store, await another()];
    for (let round = 0; round < rounds; round += 1) {
      const { records } = await store.load();
      const outcomes = await Promise.allSettled(
        racers.map((racer, index) =>
          racer.commit(round, [...records, tombstone(`${round} by ${index}`)], [eventOf(`${round} by ${index}`)]),
        ),
      );
      assert.deepEqual(outcomes.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
      const lost = outcomes.find((outcome) => outcome.status === "rejected")?.reason as JwksdError;
      assert.equal(lost.code, "ERR_STORE_CONFLICT", lost.message);
    }
    const { revision, records } = await store.load();
    const kids = records.map(({ kid }) => kid);
    assert.equal(revision, rounds);
    assert.deepEqual(
      kids.map((kid) => Number.parseInt(kid, 10)),
      [...Array(rounds).keys()],
    );
    assert.deepEqual((await store.events()).map(({ kid }) => kid).toReversed(), kids);
  });

  test("what is loaded while others commit is of one moment", async (store, another) => {
    const other = await another();
    const end = Math.floor(rounds / 2);
    const state = { isOver: false };
    const commits = async (): Promise<void> => {
      for (let revision = 0; revision < end; revision += 1) {
        const { records } = await other.load();
        await other.commit(revision, [...records, tombstone(`${revision}`)], [], { mac: `${revision + 1}` });
      }
    };
    const loads = async (): Promise<void> => {
      while (!state.isOver) {
        const { revision, records, mac = "0" } = await store.load();
        assert.deepEqual([records.length, Number(mac)], [revision, revision]);
      }
    };
    await Promise.all([commits().finally(() => (state.isOver = true)), loads(), loads(), loads()]);
  });

  test("1,000 tombstones, and one record more", async (store, another) => {
    const records = Array.from({ length: 1_000 }, (_, index) => tombstone(`kid ${index}`));
    await store.commit(0, records, []);
    await store.commit(1, [...records, whole], []);
    assert.deepEqual(await committed(await another()), { revision: 2, records: [...records, whole] });
  });
}
