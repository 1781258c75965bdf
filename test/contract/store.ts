import { permanentMs } from "../../src/rotation/rules/permanent-lease.ts";
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { afterEach, beforeEach, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { type ErrorCode, JwksdError } from "../../src/base/errors.ts";
import type { KeyRecord, KeyStore, Lease, LeaseSeen } from "../../src/rotation/store/store.ts";
import { committed, eventOf, tombstone } from "../support/records.ts";

/** One store to hold against the contract, empty. */
export interface StoreUnderTest {
  /** Another handle on it, as another process would have; called at least once. A store without handles gives itself. */
  readonly handle: () => Promise<KeyStore>;
  /** Takes everything away, after all handles have been closed. */
  readonly end?: () => Promise<void>;
}

/** A record with every member. */
const whole: KeyRecord = {
  kid: "whole",
  use: "sig",
  alg: "ES256",
  state: "active",
  announcedAt: 1,
  activatedAt: 2,
  unannounced: true,
  publicJwk: { kty: "EC", crv: "P-256", x: "eA", y: "eQ" },
  privateHalf: { jwe: "e30..a.b.c" },
  successorLease: { by: "replica 1", until: 8.64e15 },
};

const encryption: KeyRecord = {
  kid: "encryption",
  use: "enc",
  alg: "RSA-OAEP-256",
  state: "revoked",
  announcedAt: 0,
  endedAt: 3,
  publicJwk: { kty: "RSA", n: "AQAB", e: "AQAB" },
  privateHalf: { uri: "vault:transit/keys/a?version=1" },
};

// Case, normal forms, trailing spaces, surrogate pairs, and what other stores take for a pattern, an end or a quote.
const hardKids = [
  "a",
  "A",
  "a ",
  " a",
  "é",
  "e\u0301",
  "ß",
  "ss",
  "🔑",
  "%",
  "_",
  "a\u0000b",
  "a\u0000c",
  // Not well-formed: no keyset takes them, but a store must not mix them up.
  "\ud800",
  "\ud801",
  "'",
  '"',
  "\\",
  "\n",
];

const leasesOf = async (store: KeyStore): Promise<(LeaseSeen & Pick<Lease, "name">)[]> =>
  (await store.load()).leases.map(({ id, name, publishes, signsWith }) => ({ id, name, publishes, signsWith }));

const longMs = 3_600_000;

/** Lets the time of a lease pass by the clock of the store. */
async function runOut(store: KeyStore, id: string): Promise<void> {
  await store.renew({ id, publishes: 0, signsWith: [] }, 1);
  const { now } = await store.load();
  const deadlineMs = performance.now() + 10_000;
  while ((await store.load()).now <= now + 1) assert.ok(performance.now() < deadlineMs, "its clock stands still");
}

async function refused(attempt: Promise<unknown>, code: ErrorCode, retryable: boolean): Promise<void> {
  await assert.rejects(attempt, (error) => {
    assert.ok(error instanceof JwksdError);
    assert.deepEqual([error.name, error.code, error.retryable], ["StoreError", code, retryable], error.message);
    return true;
  });
}

/** What every store must pass. `open` is called for each test; `rounds` are those of a race. @see KeyStore */
export function checkStore(name: string, open: () => Promise<StoreUnderTest>, rounds = 200): void {
  describe(`a store: ${name}`, () => {
    let underTest: StoreUnderTest;
    let handles: KeyStore[];
    let store: KeyStore;
    const another = async (): Promise<KeyStore> => {
      const handle = await underTest.handle();
      handles.push(handle);
      return handle;
    };

    beforeEach(async () => {
      underTest = await open();
      handles = [];
      store = await another();
    });
    afterEach(async () => {
      for (const handle of handles) await handle.close();
      await underTest.end?.();
    });

    test("begins empty, at revision 0", async () => {
      assert.deepEqual(await committed(store), { revision: 0, records: [] });
      assert.deepEqual(await store.events(), []);
    });

    test("a commit gives the next revision, and what every handle loads", async () => {
      const earlier = await another();
      assert.equal(await store.commit(0, [whole], [eventOf("whole")]), 1);
      assert.equal(await store.commit(1, [whole], []), 2, "also one that changes nothing");
      for (const handle of [store, earlier, await another()]) {
        assert.deepEqual(await committed(handle), { revision: 2, records: [whole] });
        assert.equal((await handle.events()).length, 1);
      }
    });

    test("the seal of a commit is what every handle loads; a commit without one takes it away", async () => {
      const other = await another();
      for (const [revision, seal] of ["a", "b.c", undefined, "e30.🔑"].entries()) {
        await store.commit(revision, [whole], [], { seal });
        const expected = { revision: revision + 1, records: [whole], ...(seal !== undefined && { seal }) };
        for (const handle of [store, other]) assert.deepEqual(await committed(handle), expected);
      }
      await refused(store.commit(0, [whole], [], { seal: "late" }), "ERR_STORE_CONFLICT", true);
      assert.equal((await store.load()).seal, "e30.🔑");
    });

    test("records come back equal, in the order in which they were added", async () => {
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

    test("a member that a record no longer has is gone", async () => {
      const { privateHalf: _gone, successorLease: _goneToo, ...bare } = whole;
      await store.commit(0, [whole], []);
      await store.commit(1, [bare], []);
      assert.deepEqual((await store.load()).records, [bare]);
    });

    test("kids are compared character by character", async () => {
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

    test("a conflict changes nothing", async () => {
      await store.commit(0, [tombstone("a")], [eventOf("a")]);
      for (const wrong of [0, 2]) {
        await refused(store.commit(wrong, [whole, tombstone("a")], [eventOf("whole")]), "ERR_STORE_CONFLICT", true);
      }
      assert.deepEqual(await committed(store), { revision: 1, records: [tombstone("a")] });
      assert.equal((await store.events()).length, 1);
    });

    test("a record is never forgotten, and none is there twice", async () => {
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

    test("events are numbered from 1, newest first, in pages", async () => {
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

    test("nothing is shared with callers", async () => {
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

    test(`of two handles that race, exactly one wins each of ${rounds} rounds`, async () => {
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

    test("what is loaded while others commit is of one moment", async () => {
      const other = await another();
      const end = Math.floor(rounds / 2);
      const commits = async (): Promise<void> => {
        for (let revision = 0; revision < end; revision += 1) {
          const { records } = await other.load();
          await other.commit(revision, [...records, tombstone(`${revision}`)], [], { seal: `${revision + 1}` });
        }
      };
      const loads = async (): Promise<void> => {
        for (let seen = 0; seen < end;) {
          const { revision, records, seal = "0" } = await store.load();
          assert.deepEqual([records.length, Number(seal)], [revision, revision]);
          seen = revision;
        }
      };
      await Promise.all([commits(), loads(), loads(), loads()]);
    });

    test("1,000 tombstones, and one record more", async () => {
      const records = Array.from({ length: 1_000 }, (_, index) => tombstone(`kid ${index}`));
      await store.commit(0, records, []);
      await store.commit(1, [...records, whole], []);
      assert.deepEqual(await committed(await another()), { revision: 2, records: [...records, whole] });
    });

    test("its clock goes by the machine's, or by its own, in milliseconds", async () => {
      const [first, second] = [await store.load(), await (await another()).load()];
      assert.ok(first.now > 1_700_000_000_000 && first.now < 8.64e15, String(first.now));
      assert.ok(second.now >= first.now && second.now - first.now < 60_000);
    });

    test("a lease is seen by every handle, in the order of joining, until it is ended", async () => {
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

    test("a lease is ended by somebody else only if it has not been renewed since it was seen", async () => {
      await store.join({ id: "a", name: "a" }, longMs);
      await store.renew({ id: "a", publishes: 1, signsWith: [] }, longMs, { serial: 7 });
      const other = await another();
      for (const ifSerial of [0, 6, 8]) await other.leave("a", { ifSerial });
      assert.deepEqual([(await store.load()).leases.length, (await store.load()).ended], [1, []]);
      await other.leave("a", { ifSerial: 7 });
      assert.deepEqual([await leasesOf(store), (await store.load()).ended], [[], ["a"]]);
    });

    test("of a renewal and somebody who ends the lease as it was before, one comes first", async () => {
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

    test("a renewal moves the end, both ways", async () => {
      await store.join({ id: "a", name: "a" }, 60_000);
      // A copy that is served without a process has a lease for a hundred years.
      for (const forMs of [longMs, permanentMs, 30_000.5]) {
        const { now } = await store.load();
        await store.renew({ id: "a", publishes: 0, signsWith: [] }, forMs);
        const { until, forMs: lasts } = (await store.load()).leases[0] as Lease;
        assert.equal(lasts, Math.ceil(forMs));
        assert.ok(until >= now + forMs && until <= now + forMs + 20_000, `${until - now}`);
      }
    });

    test("nobody joins under an id that is there, and that changes nothing", async () => {
      await store.join({ id: "a", name: "first" }, longMs);
      await refused((await another()).join({ id: "a", name: "second" }, longMs), "ERR_STORE_CONFLICT", true);
      assert.deepEqual(await leasesOf(store), [{ id: "a", name: "first", publishes: 0, signsWith: [] }]);
    });

    test("what has ended is never renewed", async () => {
      const renew = (id: string) => store.renew({ id, publishes: 1, signsWith: [] }, longMs);
      await refused(renew("never-there"), "ERR_LEASE_ENDED", false);
      await store.join({ id: "left", name: "left" }, longMs);
      await store.leave("left");
      await refused(renew("left"), "ERR_LEASE_ENDED", false);
      await refused(store.join({ id: "left", name: "left" }, longMs), "ERR_STORE_CONFLICT", true);
      assert.deepEqual((await store.load()).leases, []);
    });

    test("a renewal that was given up and arrives late changes nothing", async () => {
      await store.join({ id: "a", name: "a" }, longMs);
      const renew = (publishes: number, serial: number) =>
        store.renew({ id: "a", publishes, signsWith: [] }, longMs, { serial });
      await renew(1, 1);
      await renew(3, 3);
      await refused(renew(2, 2), "ERR_LEASE_ENDED", false);
      assert.deepEqual(await leasesOf(store), [{ id: "a", name: "a", publishes: 3, signsWith: [] }]);
      // The same one twice, where its answer was lost.
      await renew(3, 3);
      await renew(4, 4);
      assert.equal((await leasesOf(store))[0]?.publishes, 4);
    });

    test("a renewal on the condition of a revision", async () => {
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
      test(`a commit that relies on leases, after ${name}: ${conflicts ? "a conflict" : "it is written"}`, async () => {
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
        // What does not rely on them is not held up by them.
        assert.equal(await store.commit(revision, [whole], []), revision + 1);
      });
    }

    test("of a commit that relies on leases and a renewal that race, the commit knows, or the renewal sees it", async () => {
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

    const wrongLeases: [name: string, attempt: () => Promise<unknown>][] = [
      ["no id", () => store.join({ id: "", name: "a" }, longMs)],
      ["a long id", () => store.join({ id: "a".repeat(65), name: "a" }, longMs)],
      ["an id that is not plain", () => store.join({ id: "a b", name: "a" }, longMs)],
      ["no name", () => store.join({ id: "a", name: "" }, longMs)],
      ["a long name", () => store.join({ id: "a", name: "a".repeat(256) }, longMs)],
      ["a name that a terminal obeys", () => store.join({ id: "a", name: "a[2J" }, longMs)],
      ["no time", () => store.join({ id: "a", name: "a" }, 0)],
      ["a time that is none", () => store.join({ id: "a", name: "a" }, Number.NaN)],
      ["a revision that is none", () => store.renew({ id: "b", publishes: 0.5, signsWith: [] }, longMs)],
      ["a negative revision", () => store.renew({ id: "b", publishes: -1, signsWith: [] }, longMs)],
      ["many kids", () => store.renew({ id: "b", publishes: 0, signsWith: Array<string>(17).fill("a") }, longMs)],
      ["a long kid", () => store.renew({ id: "b", publishes: 0, signsWith: ["a".repeat(4_097)] }, longMs)],
      ["an empty kid", () => store.renew({ id: "b", publishes: 0, signsWith: [""] }, longMs)],
      ["an infinite time", () => store.renew({ id: "b", publishes: 0, signsWith: [] }, Infinity)],
    ];
    test("a lease that breaks a rule is refused, and changes nothing", async () => {
      await store.join({ id: "b", name: "b" }, longMs);
      const before = await leasesOf(store);
      for (const [name, attempt] of wrongLeases) {
        await assert.rejects(async () => attempt(), { name: "ConfigError", code: "ERR_OPTION_INVALID" }, name);
      }
      assert.deepEqual(await leasesOf(store), before);
    });

    for (const writer of ["the same handle", "another handle"]) {
      test(`watch calls back within a second after a commit of ${writer}`, async () => {
        const handle = writer === "the same handle" ? store : await another();
        const watched = watching(store);
        for (let revision = 0; revision < 3; revision += 1) {
          const change = watched.next();
          await handle.commit(revision, [], []);
          await change;
          // What the callback announces can be loaded.
          assert.equal((await store.load()).revision, revision + 1);
        }
        watched.stop();
      });
    }

    test("watch calls back everyone, until the signal aborts", async () => {
      const [first, second] = [watching(store), watching(store)];
      const both = [first.next(), second.next()];
      await store.commit(0, [], []);
      await Promise.all(both);
      first.stop();
      const { calls } = first;
      const change = second.next();
      await store.commit(1, [], []);
      first.stop();
      await change;
      assert.equal(first.calls, calls);
      second.stop();
    });

    test("an abort while a commit is under way: nobody is called back any more", async () => {
      const [gone, left] = [watching(store), watching(store)];
      const change = left.next();
      const commit = store.commit(0, [], []);
      gone.stop();
      await Promise.all([commit, change]);
      assert.equal(gone.calls, 0);
      left.stop();
    });

    test("watch with an aborted signal never calls back", async () => {
      store.watch(() => assert.fail("called back"), { signal: AbortSignal.abort() });
      const watched = watching(store);
      const change = watched.next();
      await store.commit(0, [], []);
      await change;
      watched.stop();
    });

    test("an aborted signal stops every method before it does anything", async () => {
      const reason = new Error("stopped");
      const options = { signal: AbortSignal.abort(reason) };
      const attempts = [
        store.load(options),
        store.commit(0, [whole], [], options),
        store.events(options),
        store.join({ id: "a", name: "a" }, longMs, options),
        store.renew({ id: "a", publishes: 0, signsWith: [] }, longMs, options),
        store.leave("a", options),
      ];
      const outcomes = await Promise.allSettled(attempts);
      assert.ok(outcomes.every((outcome) => isDeepStrictEqual(outcome, { status: "rejected", reason })));
      assert.deepEqual([(await store.load()).revision, await leasesOf(store)], [0, []]);
    });

    test("a closed handle can be closed again, refuses everything else, and calls nobody back", async () => {
      const closed = await another();
      await closed.commit(0, [], []);
      closed.watch(() => assert.fail("called back"), { signal: new AbortController().signal });
      await closed.close();
      await closed.close();
      for (const attempt of [
        closed.load(),
        closed.commit(1, [], []),
        closed.events(),
        closed.join({ id: "a", name: "a" }, longMs),
        closed.renew({ id: "a", publishes: 0, signsWith: [] }, longMs),
        closed.leave("a"),
      ]) {
        await refused(attempt, "ERR_STORE_UNAVAILABLE", true);
      }
      closed.watch(() => assert.fail("called back"), { signal: new AbortController().signal });
    });
  });
}

/** Counts the calls, and waits for the next one, with some room for a busy machine. */
function watching(store: KeyStore): { readonly calls: number; next(): Promise<unknown>; stop(): void } {
  const controller = new AbortController();
  const changes = new EventEmitter();
  let calls = 0;
  store.watch(
    () => {
      calls += 1;
      changes.emit("change");
    },
    { signal: controller.signal },
  );
  return {
    get calls() {
      return calls;
    },
    next() {
      const late = new AbortController();
      // Also keeps the process alive: a store that is watched need not.
      const timer = setTimeout(() => late.abort(new Error("nobody was called back in time")), 5_000);
      return once(changes, "change", { signal: late.signal }).finally(() => clearTimeout(timer));
    },
    stop: () => controller.abort(),
  };
}
