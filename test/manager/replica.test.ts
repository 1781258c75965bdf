import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Clock, instantNow } from "../../src/base/clock.ts";
import { JwksdError } from "../../src/base/errors.ts";
import { type Clocks, createClocks } from "../../src/rotation/manager/clocks.ts";
import { createReplica } from "../../src/rotation/manager/replica.ts";
import { createSchedule } from "../../src/rotation/manager/schedule.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyStore, Lease, Snapshot } from "../../src/rotation/store/store.ts";
import { day, hour, lease, record, second } from "../rotation/key-records.ts";

const leaseMs = hour;
const code = (expected: string) => (error: unknown) => error instanceof JwksdError && error.code === expected;

/** A wall clock and a monotonic clock that are moved by hand. */
class Hands implements Clock {
  wall = Date.parse("2026-11-20T12:00:00Z");
  steady = 0;
  now = (): number => this.wall;
  monotonic = (): number => this.steady;
  setTimer = (): (() => void) => () => {};
  pass(ms: number): void {
    this.wall += ms;
    this.steady += ms;
  }
}

function replicaOf(change: (store: KeyStore, clock: Hands) => Partial<KeyStore> = () => ({})) {
  const clock = new Hands();
  const store = memoryStore({ clock });
  const replica = createReplica(
    { ...store, ...change(store, clock) },
    {
      name: "a",
      settings: { wrappingKeys: [], policy: rotationPolicy(), signs: true },
      leaseMs,
      clock,
      signal: new AbortController().signal,
    },
  );
  return { clock, store, replica };
}

const report = { publishes: 1, signsWith: ["k"] };

describe("the lease of a replica", () => {
  test("counts from when the last renewal was sent, not from when it was confirmed", async () => {
    const { clock, replica } = replicaOf((store, clock) => ({
      async renew(...args) {
        const revision = await store.renew(...args);
        clock.pass(20 * 60 * second);
        return revision;
      },
    }));
    await replica.join();
    await replica.report(report);
    clock.pass(leaseMs * 0.99 - 20 * 60 * second - 1);
    assert.equal(replica.holds, true);
    clock.pass(1);
    assert.equal(replica.holds, false);
  });

  for (const [name, move] of [
    ["the machine was suspended, which stops the monotonic clock", (clock: Hands) => void (clock.wall += leaseMs)],
    ["the wall clock was set back", (clock: Hands) => void ((clock.steady += leaseMs), (clock.wall -= leaseMs))],
  ] as const) {
    test(`has ended when ${name}`, async () => {
      const { clock, replica } = replicaOf();
      await replica.join();
      await replica.report(report);
      move(clock);
      assert.equal(replica.holds, false);
    });
  }

  test("a renewal whose answer is lost prolongs nothing here, and the one before stays in force", async () => {
    let loses = false;
    const { clock, store, replica } = replicaOf((store) => ({
      async renew(...args) {
        const revision = await store.renew(...args);
        if (loses) throw new Error("the connection is gone");
        return revision;
      },
    }));
    await replica.join();
    await replica.report(report);
    clock.pass(leaseMs / 2);
    loses = true;
    await assert.rejects(replica.report({ publishes: 2, signsWith: ["k", "l"] }));
    assert.deepEqual((await store.load()).leases[0]?.signsWith, ["k", "l"], "the others may know of it");
    assert.deepEqual(replica.lastReported, report);
    assert.throws(() => replica.checkMaySign("l"), code("ERR_SIGNER_STALE"));
    clock.pass(leaseMs * 0.99 - leaseMs / 2);
    assert.equal(replica.holds, false);
  });

  test("a kid that a renewal leaves out is given up when that is sent, and comes back only at a revision", async () => {
    let loses = false;
    const { store, replica } = replicaOf((store) => ({
      async renew(...args) {
        const revision = await store.renew(...args);
        if (loses) throw new Error("the connection is gone");
        return revision;
      },
    }));
    await replica.join();
    const { revision } = await store.load();
    const both = { publishes: 1, signsWith: ["k", "l"] };
    await replica.report(both, revision);
    loses = true;
    await assert.rejects(replica.report({ ...both, signsWith: ["l"] }));
    assert.deepEqual(replica.signsWith, ["l"], "the others may count on that");
    loses = false;
    await replica.report(both);
    assert.throws(() => replica.checkMaySign("k"), code("ERR_SIGNER_STALE"));
    await assert.rejects(replica.report(both, revision + 1), code("ERR_STORE_CONFLICT"));
    await replica.report(both, revision);
    replica.checkMaySign("k");
  });

  test("one that another replica has ended is not renewed: the replica joins anew, and has reported nothing yet", async () => {
    const { store, replica } = replicaOf();
    await replica.join();
    await replica.report(report);
    const [before] = (await store.load()).leases as [Lease];
    await store.leave(before.id);
    await assert.rejects(replica.report(report), code("ERR_LEASE_ENDED"));
    assert.throws(() => replica.checkMaySign("k"), code("ERR_SIGNER_STALE"));
    await replica.join();
    assert.deepEqual(replica.lastReported, { publishes: 0, signsWith: [] });
    const { leases } = await store.load();
    assert.deepEqual(
      leases.map(({ id, publishes }) => [id === before.id, publishes]),
      [[false, 0]],
    );
  });

  test("whoever joins anew ends what it had: nobody waits for that", async () => {
    let loses = true;
    const { clock, store, replica } = replicaOf((store) => ({
      async join(...args) {
        await store.join(...args);
        if (loses) throw new Error("the connection is gone");
      },
    }));
    await assert.rejects(replica.join());
    loses = false;
    await replica.join();
    await replica.report(report);
    assert.equal((await store.load()).leases.length, 1);
    clock.pass(leaseMs);
    await replica.join();
    const { leases, ended } = await store.load();
    assert.deepEqual([leases.length, leases[0]?.publishes, ended.length], [1, 0, 2]);
    await replica.leave(() => assert.fail());
    assert.deepEqual((await store.load()).leases, []);
  });
});

function clocksOf() {
  const clock = new Hands();
  const clocks = createClocks(clock, 300 * second);
  /** @param tookMs from the question to the answer */
  const look = (snapshot: Snapshot, tookMs = 0) => {
    const { wall: asked } = instantNow(clock);
    clock.pass(tookMs);
    return clocks.look({ ...snapshot, asked, answered: instantNow(clock) });
  };
  return { clock, clocks, look };
}

const snapshot = (now: number, leases: readonly Lease[], ended: readonly string[] = []) => ({
  revision: 1,
  records: [],
  now,
  leases,
  ended,
});

const ids = ({ counted, over }: ReturnType<Clocks["look"]>): string =>
  `counted ${counted.map(({ id }) => id).join()} over ${over.map(({ id }) => id).join()}`;

describe("what a process knows of time", () => {
  const at = Date.parse("2026-11-20T12:00:00Z");
  const announced = record("k", "announced", { announcedAt: at, publishedAt: at });
  const wait = { since: at, forMs: 4 * hour };

  test("a wait is over when the store's time and the monotonic clock agree", () => {
    const { clock, clocks } = clocksOf();
    const left = (): number => clocks.leftMs(announced, wait, clock.wall);
    assert.equal(left(), 4 * hour);
    clock.pass(hour);
    assert.equal(left(), 3 * hour);
    // A jump ahead is no waiting.
    clock.wall += 10 * hour;
    assert.equal(left(), 3 * hour);
    clock.pass(3 * hour);
    assert.equal(left(), 0);
  });

  test("whoever comes later waits for the rest", () => {
    const { clock, clocks } = clocksOf();
    assert.equal(clocks.leftMs(announced, wait, at + 3 * hour), hour);
    clock.pass(hour);
    assert.equal(clocks.leftMs(announced, wait, at + 4 * hour), 0);
  });

  test("a wait that began while nobody looked is not shortened by what the store's clock has moved ahead in that time", () => {
    const { clock, clocks, look } = clocksOf();
    look(snapshot(at, []));
    clock.pass(2 * hour);
    const since = at + hour;
    const begun = record("k", "announced", { announcedAt: at, publishedAt: since });
    const now = at + 2 * hour + 1.5 * hour;
    look({ ...snapshot(now, []), records: [begun] });
    assert.equal(clocks.leftMs(begun, { ...wait, since }, now), 3 * hour);
  });

  test("a beginning years ahead is over after one whole wait by the monotonic clock", () => {
    const { clock, clocks } = clocksOf();
    const ahead = { ...wait, since: at + 8_760 * hour };
    assert.equal(clocks.leftMs(announced, ahead, clock.wall), 4 * hour);
    clock.pass(4 * hour);
    assert.equal(clocks.leftMs(announced, ahead, clock.wall), 0);
  });

  test("a lease is over when it was seen without a renewal for as long as it lasts, whatever the store's clock says", () => {
    const { clock, look } = clocksOf();
    // It was given an hour ago by a clock that has been set since.
    const first = lease("l", { until: at - hour });
    assert.equal(ids(look(snapshot(at, [first]))), "counted l over ");
    clock.pass(hour - 1);
    assert.equal(ids(look(snapshot(at + 9 * hour, [first]))), "counted l over ");
    const renewed = { ...first, serial: 1 };
    assert.equal(ids(look(snapshot(at - 9 * hour, [renewed]))), "counted l over ");
    clock.pass(hour - 1);
    assert.equal(ids(look(snapshot(at, [renewed]))), "counted l over ");
    clock.pass(1);
    assert.equal(ids(look(snapshot(at, [renewed]))), "counted  over l");
    // An older copy of the store has taken its place: who knows what was renewed.
    assert.equal(ids(look(snapshot(at, [first]))), "counted l over ");
  });

  test("a lease that was ended counts no more", () => {
    const { look } = clocksOf();
    assert.equal(ids(look(snapshot(at, [lease("l"), lease("m")]))), "counted l,m over ");
    assert.equal(ids(look(snapshot(at, [lease("m")], ["l"]))), "counted m over ");
  });

  test("a lease that the store has lost counts for as long as it lasts: a failover may have lost renewals", () => {
    const { clock, look } = clocksOf();
    look(snapshot(at, [lease("l")]));
    clock.pass(hour - 1);
    assert.equal(ids(look(snapshot(at, []))), "counted l over ");
    clock.pass(hour - 1);
    assert.equal(ids(look(snapshot(at, []))), "counted l over ");
    clock.pass(1);
    assert.equal(ids(look(snapshot(at, []))), "counted  over ");
  });

  for (const [name, move] of [
    ["was set", (clock: Hands) => void (clock.wall += 301 * second)],
    ["was set back", (clock: Hands) => void (clock.wall -= 301 * second)],
  ] as const) {
    test(`no token gets its times from a clock that ${name} since the last look at the store`, () => {
      const { clock, clocks, look } = clocksOf();
      look(snapshot(clock.wall, []));
      assert.equal(clocks.fault, undefined);
      move(clock);
      assert.match(String(clocks.fault), /clockSkewSeconds/);
      look(snapshot(clock.wall, []));
      assert.equal(clocks.fault, undefined);
    });
  }

  test("no token gets its times from a clock that differs from the store's", () => {
    const { clock, clocks, look } = clocksOf();
    for (const [off, isWrong] of [
      [299, false],
      [301, true],
      [-301, true],
    ] as const) {
      look(snapshot(clock.wall + off * second, []));
      if (isWrong) assert.match(String(clocks.fault), /clockSkewSeconds/);
      else assert.equal(clocks.fault, undefined);
    }
  });

  test("small steps of the clock add up, however often the store was looked at", () => {
    const { clock, clocks, look } = clocksOf();
    look(snapshot(clock.wall, []));
    clock.wall += 200 * second;
    look(snapshot(clock.wall - 200 * second, []));
    assert.equal(clocks.fault, undefined);
    clock.wall += 200 * second;
    assert.match(String(clocks.fault), /clockSkewSeconds/);
  });

  for (const [offSeconds, isWrong] of [
    [300, false],
    [301, true],
    [-294, false],
    [-295, true],
  ] as const) {
    test(`${offSeconds} s ahead of an answer that took 6 s, because nobody knows when the store looked at its clock`, () => {
      const { clock, clocks, look } = clocksOf();
      look(snapshot(clock.wall + offSeconds * second, []), 6 * second);
      assert.equal(clocks.fault !== undefined, isWrong);
    });
  }
});

describe("when a replica takes which step", () => {
  test("a key that could not sign is tried once a minute, and not while its wait goes on, which others have begun again", () => {
    const { clock, clocks, look } = clocksOf();
    const schedule = createSchedule(rotationPolicy(), clocks, clock);
    const at = clock.wall;
    const active = record("a", "active", { announcedAt: at - 10 * day, activatedAt: at - 9 * day });
    const nextSince = (publishedAt: number) => record("b", "announced", { announcedAt: at - 2 * day, publishedAt });
    const dueAfter = (storeIsAheadMs: number, publishedAt: number): number => {
      const now = clock.wall + storeIsAheadMs;
      const records = [active, nextSince(publishedAt)];
      look({ ...snapshot(now, []), records });
      schedule.forgetTaken(records, now);
      return schedule.dueInMs(records);
    };
    assert.equal(dueAfter(0, at - day), 0);
    schedule.holdBack("b");
    assert.equal(dueAfter(0, at - day), 60 * second);
    clock.pass(60 * second);
    assert.equal(dueAfter(0, at - day), 0);
    // The store's clock was hours ahead when another replica began the wait again, and is more than the wait ahead now.
    assert.equal(dueAfter(8 * hour + day, clock.wall + 8 * hour), day);
  });
});
