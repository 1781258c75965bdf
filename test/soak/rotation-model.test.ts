import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { StateError } from "../../src/errors.ts";
import { type Change, advance, leaseNextForMs } from "../../src/rotation/advance.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/commands.ts";
import { type RotationPolicy, cachedForSeconds, rotationPolicy } from "../../src/rotation/policy.ts";
import { activeKey, checkFence, checkRecords, isRotating, publishedKeys } from "../../src/rotation/records.ts";
import type { KeyEvent, KeyRecord, KeyUse } from "../../src/store/store.ts";
import { day, frozen, hour, newKey, second, start, year } from "../rotation/key-records.ts";
import { soak } from "../support/soak.ts";

/*
 * Several replicas work on one store: each loads, decides, and commits by compare-and-set, and in between the others do, or it
 * crashes. What they decide by is what their clocks tell; the laws hold in true time, which only the model knows.
 *
 * Which clocks are covered: each is off by any number of whole years, and by up to half of clockSkewSeconds to either side, and is
 * set anew at any moment. So between the writing of a time and its reading, a clock has moved by
 * - at most clockSkewSeconds, which the policy adds to every bound; or
 * - forwards by more than any waiting time and an hour: such a wait is taken for missed, and starts again; or
 * - backwards by years: the wait takes longer, or it began in the future and starts again.
 * A clock that is set forwards by more than the skew and less than the rest of a waiting time is not covered: nothing tells it from
 * time that has passed.
 *
 * A commit follows its decision, and a replica follows a commit, within replicaLagSeconds in all; who takes longer has crashed.
 */

const policies: readonly RotationPolicy[] = [
  rotationPolicy(),
  rotationPolicy({ rotateEveryDays: 2, announceForSeconds: 15_000, cacheSlackSeconds: 7_000 }),
  rotationPolicy({
    rotateEveryDays: 60,
    announceForSeconds: 7_200,
    cacheSlackSeconds: 0,
    clockSkewSeconds: 0,
    replicaLagSeconds: 0,
  }),
  rotationPolicy({
    rotateEveryDays: 60,
    maxTokenLifetimeSeconds: 30 * 86_400,
    clockSkewSeconds: 1_800,
    replicaLagSeconds: 120,
  }),
];

const replicas = [0, 1, 2];
const codes = new Set(["ERR_KID_USED", "ERR_KID_UNMANAGED", "ERR_TRANSITION", "ERR_TOO_EARLY"]);

/** What one replica does with the records that it sees; kids are given by their place. */
type Act =
  | { readonly type: "advance"; readonly heldBack: boolean }
  | { readonly type: "claim" }
  | { readonly type: "activate" | "retire" | "remove"; readonly which: number; readonly force: boolean }
  | { readonly type: "revoke"; readonly which: number; readonly replace: boolean }
  | { readonly type: "announce"; readonly use: KeyUse; readonly key: "new" | "kid again" | "key again" }
  | { readonly type: "rotate"; readonly use: KeyUse; readonly now: boolean; readonly withKey: boolean }
  | {
      readonly type: "import";
      readonly use: KeyUse;
      readonly state: "announced" | "active" | "retiring";
      readonly force: boolean;
    };

type Wait = "moment" | "minute" | "hour" | "announcement" | "retirement" | "period";

type Step =
  | { readonly type: "wait"; readonly for: Wait; readonly plusMs: number }
  /** Until a replica would wake, by its own clock. */
  | { readonly type: "sleep"; readonly replica: number; readonly plusMs: number }
  | { readonly type: "set clock"; readonly replica: number; readonly years: number; readonly skew: number }
  | { readonly type: "load" | "commit" | "crash"; readonly replica: number }
  | { readonly type: "decide" | "turn"; readonly replica: number; readonly act: Act };

const use = fc.constantFrom<KeyUse>("sig", "sig", "enc");
const which = fc.nat(9);
const rarely = fc.nat(4).map((value) => value === 0);

const act: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({ type: fc.constant<"advance">("advance"), heldBack: fc.nat(9).map((value) => value === 0) }),
  },
  { weight: 2, arbitrary: fc.constant<Act>({ type: "claim" }) },
  { weight: 5, arbitrary: fc.record({ type: fc.constantFrom("activate", "retire", "remove"), which, force: rarely }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant<"revoke">("revoke"), which, replace: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant<"announce">("announce"),
      use,
      key: fc.constantFrom("new", "new", "new", "kid again", "key again"),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ type: fc.constant<"rotate">("rotate"), use, now: rarely, withKey: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant<"import">("import"),
      use,
      state: fc.constantFrom("announced", "active", "retiring"),
      force: rarely,
    }),
  },
);

const replica = fc.constantFrom(...replicas);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      type: fc.constant<"wait">("wait"),
      for: fc.constantFrom<Wait>("moment", "minute", "hour", "announcement", "retirement", "period"),
      plusMs: fc.constantFrom(0, 0, 1, second, hour + 1),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant<"sleep">("sleep"),
      replica,
      plusMs: fc.constantFrom(-1, 0, 0, 0, hour, hour + 1),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant<"set clock">("set clock"),
      replica,
      years: fc.constantFrom(0, 0, 0, 1, -1, 2, -30, 40),
      skew: fc.constantFrom(-1, -1, 1, 1, 0, 0.3),
    }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constantFrom("load", "commit", "commit"), replica }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant<"crash">("crash"), replica }) },
  { weight: 4, arbitrary: fc.record({ type: fc.constant<"decide">("decide"), replica, act }) },
  { weight: 10, arbitrary: fc.record({ type: fc.constant<"turn">("turn"), replica, act }) },
);

/** What the model knows about a key, in true time. */
interface Life {
  readonly announcedAt: number;
  /** From when on nobody decided to sign with it, or to publish it for encryption. */
  readonly stoppedAt?: number;
}

interface Decision extends Change {
  readonly revision: number;
  readonly before: readonly KeyRecord[];
  readonly decidedAt: number;
  readonly act: Act;
}

interface Replica {
  offsetMs: number;
  seen?: { readonly revision: number; readonly records: readonly KeyRecord[] } | undefined;
  decision?: Decision | undefined;
}

/** How often each thing came to pass in all histories. */
type Tally = Map<string, number>;

const count = (tally: Tally, what: string): unknown => tally.set(what, (tally.get(what) ?? 0) + 1);

class World {
  readonly #policy: RotationPolicy;
  readonly #tally: Tally;
  readonly #replicas: readonly Replica[] = replicas.map(() => ({ offsetMs: 0 }));
  readonly #lives = new Map<string, Life>();
  #nowMs = start;
  #revision = 0;
  #records: readonly KeyRecord[] = [];
  #made = 0;

  constructor(policy: RotationPolicy, tally: Tally) {
    this.#policy = policy;
    this.#tally = tally;
  }

  take(step: Step): void {
    if (step.type === "wait") {
      this.#nowMs += this.#lengthOf(step.for) + step.plusMs;
      return;
    }
    const replica = this.#replicas[step.replica] as Replica;
    if (step.type === "sleep") {
      const { wakeAt } = advance(this.#records, this.#policy, this.#nowMs + replica.offsetMs);
      if (wakeAt < Infinity) this.#nowMs = Math.max(this.#nowMs, wakeAt - replica.offsetMs + step.plusMs);
    } else if (step.type === "set clock") {
      replica.offsetMs = step.years * year + Math.round((step.skew * this.#policy.clockSkewSeconds * second) / 2);
    } else if (step.type === "load") this.#load(replica);
    else if (step.type === "commit") this.#commit(replica);
    else if (step.type === "decide") this.#decide(replica, step.act);
    else if (step.type === "turn") {
      this.#load(replica);
      this.#decide(replica, step.act);
      this.#commit(replica);
    } else replica.seen = replica.decision = undefined;
    this.#checkPlan(this.#nowMs + replica.offsetMs);
  }

  #lengthOf(wait: Wait): number {
    const { announceForSeconds, maxTokenLifetimeSeconds, clockSkewSeconds, rotateEveryDays } = this.#policy;
    const announcement = announceForSeconds * second;
    const retirement = (maxTokenLifetimeSeconds + 2 * clockSkewSeconds) * second;
    return { moment: 0, minute: 60 * second, hour, announcement, retirement, period: rotateEveryDays * day }[wait];
  }

  #load(replica: Replica): void {
    replica.seen = { revision: this.#revision, records: this.#records };
  }

  #decide(replica: Replica, act: Act): void {
    const { seen } = replica;
    replica.decision = undefined;
    if (seen === undefined) return;
    try {
      const change = frozen(this.#enact(act, seen.records, this.#nowMs + replica.offsetMs));
      if (change.records === seen.records) assert.deepEqual(change.events, []);
      replica.decision = { ...change, revision: seen.revision, before: seen.records, decidedAt: this.#nowMs, act };
    } catch (error) {
      if (!(error instanceof StateError)) throw error;
      // Refused: what it saw is frozen, so nothing has changed.
      assert.ok(codes.has(error.code), error.code);
      assert.equal(error.allowedAt !== undefined, error.code === "ERR_TOO_EARLY");
      count(this.#tally, error.code);
    }
  }

  #enact(act: Act, records: readonly KeyRecord[], now: number): Change {
    const policy = this.#policy;
    const kid = (which: number): string => records[which % Math.max(records.length, 1)]?.kid ?? "none";
    const fresh = (use: KeyUse) => newKey(`key ${(this.#made += 1)}`, use);
    const command = (command: Command): Change => applyCommand(records, command, policy, now);
    switch (act.type) {
      case "advance": {
        const announced = records.filter(({ state }) => state === "announced").map(({ kid }) => kid);
        const { due, ...planned } = advance(records, policy, now, new Set(act.heldBack ? announced : []));
        return due.reduce<Change>((change, use) => announce(change, fresh(use), now, "it is time"), planned);
      }
      case "claim": {
        const active = activeKey(records, "sig");
        if (active === undefined || !advance(records, policy, now).due.includes("sig")) return { records, events: [] };
        const claimed = { ...active, successorLease: { by: "somebody", until: now + leaseNextForMs } };
        return { records: records.map((record) => (record === active ? claimed : record)), events: [] };
      }
      case "revoke": {
        const { use = "sig" } = records.find((record) => record.kid === kid(act.which)) ?? {};
        return command({ type: "revoke", kid: kid(act.which), replacement: act.replace ? fresh(use) : undefined });
      }
      case "announce": {
        const key = fresh(act.use);
        const [used] = records;
        if (used === undefined || act.key === "new") return command({ type: "announce", key });
        const again = act.key === "kid again" ? { ...key, kid: used.kid } : { ...key, publicJwk: used.publicJwk };
        const change = command({ type: "announce", key: again });
        return assert.fail(`a key was added twice: ${JSON.stringify(change.events)}`);
      }
      case "rotate":
        return command({ type: "rotate", use: act.use, key: act.withKey ? fresh(act.use) : undefined, now: act.now });
      case "import":
        return command({ type: "import", key: fresh(act.use), state: act.state, force: act.force });
      default:
        return command({ type: act.type, kid: kid(act.which), force: act.force });
    }
  }

  #commit(replica: Replica): void {
    const { decision } = replica;
    replica.decision = undefined;
    if (decision === undefined || decision.records === decision.before) return;
    if (this.#nowMs > decision.decidedAt + this.#policy.replicaLagSeconds * second) return;
    if (decision.revision !== this.#revision) {
      count(this.#tally, "conflict");
      return;
    }
    this.#checkCommit(decision);
    this.#records = decision.records;
    this.#revision += 1;
  }

  #checkCommit({ before, records, events, act, decidedAt }: Decision): void {
    checkRecords(records);
    const old = new Map(before.map((record) => [record.kid, record]));
    assert.deepEqual(
      records.slice(0, before.length).map(({ kid }) => kid),
      [...old.keys()],
      "a record is gone, or moved",
    );
    const happened = records.flatMap((record) => {
      const was = old.get(record.kid);
      if (was === record || isDeepStrictEqual(was, record)) return [];
      return was === undefined
        ? this.#added(record, before, act, decidedAt)
        : this.#moved(was, record, records, act, decidedAt);
    });
    for (const what of happened) count(this.#tally, what.slice(0, what.indexOf(" ")));
    assert.deepEqual(
      events
        .filter(({ type }) => type !== "restarted")
        .map(asText)
        .sort(),
      happened.sort(),
    );
    for (const _ of events.filter(({ type }) => type === "restarted")) count(this.#tally, "restarted");
    assert.equal(records.filter(({ use, state }) => use === "sig" && state === "active").length, 1);
    for (const told of this.#replicas) checkFence(records, this.#policy, this.#nowMs + told.offsetMs);
    this.#checkPublished(records);
  }

  /** A key that is new, and all that happened to it at once. */
  #added(record: KeyRecord, before: readonly KeyRecord[], act: Act, now: number): string[] {
    const { kid, use, state } = record;
    const type =
      act.type === "import" && !(act.state === "announced" && state === "announced") ? "imported" : "announced";
    this.#lives.set(kid, { announcedAt: now, ...(state === "retiring" && { stoppedAt: now }) });
    if (state === "active") {
      assert.equal(record.unannounced, true);
      const isFirst = !before.some((other) => other.use === use && other.state === "active");
      assert.ok(isFirst || forces(act), `${kid} signs at once, and nobody asked for that`);
      return [`${type} ${kid}`, `activated ${kid}`];
    }
    assert.equal(record.unannounced, undefined);
    assert.ok(state === "announced" || (act.type === "import" && act.state === "retiring" && state === "retiring"));
    return [`${type} ${kid}`];
  }

  /** A key that was there, and is in another state. */
  #moved(was: KeyRecord, record: KeyRecord, records: readonly KeyRecord[], act: Act, now: number): string[] {
    const { kid, use } = record;
    const life = this.#lives.get(kid) as Life;
    const names = { active: "activated", retiring: "retired", removed: "removed", revoked: "revoked", announced: "" };
    const { announceForSeconds, clockSkewSeconds } = this.#policy;
    const how = `${was.state} to ${record.state}`;
    switch (how) {
      case "announced to announced":
      case "active to active":
      case "retiring to retiring":
        // Only its times have moved, all by as much, or somebody undertook to make the next key.
        assert.deepEqual({ ...was, ...timesOf(record), successorLease: 0 }, { ...record, successorLease: 0 });
        assert.equal(new Set(differences(was, record)).size, 1);
        return [];
      case "announced to active":
        if (record.unannounced === true) assert.ok(forces(act), `${kid} signs early, and nobody asked for that`);
        else {
          const announcedFor = now - life.announcedAt;
          assert.ok(
            announcedFor >= (announceForSeconds - clockSkewSeconds) * second,
            `${kid} signs after ${announcedFor} ms`,
          );
        }
        return [`activated ${kid}`];
      case "active to retiring":
        this.#lives.set(kid, { ...life, stoppedAt: now });
        break;
      case "announced to retiring":
        // One that somebody may have encrypted to is withdrawn, not removed.
        assert.deepEqual([use, act.type], ["enc", "remove"]);
        this.#lives.set(kid, { ...life, stoppedAt: now });
        break;
      case "announced to removed":
        assert.ok(act.type === "remove" && (use === "sig" || act.force), how);
        break;
      case "retiring to removed":
        assert.ok(act.type === "remove" || act.type === "advance", how);
        if (act.type === "advance" || !act.force) {
          const neededUntil = this.#neededUntil(use, life);
          assert.ok(now >= neededUntil, `${kid} leaves ${neededUntil - now} ms too early`);
        }
        break;
      case "announced to revoked":
      case "retiring to revoked":
        assert.equal(act.type, "revoke");
        break;
      case "active to revoked":
        assert.equal(act.type, "revoke");
        // The next key takes its place first, if there is one.
        names.revoked = activeKey(records, use) === undefined ? "revoked" : `retired ${kid},revoked`;
        break;
      default:
        assert.fail(`${kid} went from ${how}`);
    }
    if (record.state === "removed" || record.state === "revoked") {
      this.#lives.delete(kid);
      assert.equal(record.privateHalf, undefined);
    } else assert.deepEqual(record.privateHalf, was.privateHalf);
    return `${names[record.state]} ${kid}`.split(",");
  }

  /** Until when a token that it signed is valid somewhere, or a cache gives it to somebody who encrypts; in true time. */
  #neededUntil(use: KeyUse, { stoppedAt = Infinity }: Life): number {
    const { replicaLagSeconds, maxTokenLifetimeSeconds, clockSkewSeconds, cacheSlackSeconds } = this.#policy;
    const validSeconds = replicaLagSeconds + maxTokenLifetimeSeconds + clockSkewSeconds;
    const cachedSeconds = use === "enc" ? cachedForSeconds.long + cacheSlackSeconds : 0;
    return stoppedAt + (validSeconds + cachedSeconds) * second;
  }

  /** Every signing key that a token needs is published, the active one first; a key that is on its way in or out means rotation mode. */
  #checkPublished(records: readonly KeyRecord[]): void {
    const needed = records.filter(
      ({ use, kid, state }) => use === "sig" && state !== "announced" && this.#lives.has(kid),
    );
    const published = publishedKeys(records, "sig").map(({ kid }) => kid);
    assert.deepEqual(
      needed.filter(({ kid, state }) => state !== "revoked" && state !== "removed" && !published.includes(kid)),
      [],
    );
    assert.equal(published[0], activeKey(records, "sig")?.kid);
    const live = records.filter(({ state }) => state === "announced" || state === "retiring");
    assert.equal(isRotating(records), live.length > 0);
  }

  /** Looking twice changes nothing, and the next change comes at `wakeAt`, not before. */
  #checkPlan(now: number): void {
    const once = advance(this.#records, this.#policy, now);
    const twice = advance(frozen(once.records), this.#policy, now);
    assert.deepEqual({ ...twice, records: [] }, { ...once, records: [], events: [] });
    assert.equal(twice.records, once.records);
    if (once.due.length > 0) return;
    assert.ok(once.wakeAt > now && Number.isFinite(once.wakeAt), `it wakes at ${once.wakeAt}, now is ${now}`);
    const before = advance(once.records, this.#policy, once.wakeAt - 1);
    assert.deepEqual([before.events, before.due, before.wakeAt], [[], [], once.wakeAt]);
    const then = advance(once.records, this.#policy, once.wakeAt);
    assert.ok(then.events.length + then.due.length > 0, "it wakes for nothing");
  }
}

const asText = ({ type, kid }: KeyEvent): string => `${type} ${kid}`;

const forces = (act: Act): boolean =>
  act.type === "revoke" || (act.type === "rotate" && act.now) || ("force" in act && act.force);

const timesOf = ({ announcedAt, activatedAt, retiredAt }: KeyRecord): Partial<KeyRecord> => ({
  announcedAt,
  ...(activatedAt !== undefined && { activatedAt }),
  ...(retiredAt !== undefined && { retiredAt }),
});

function differences(was: KeyRecord, record: KeyRecord): number[] {
  const names = ["announcedAt", "activatedAt", "retiredAt"] as const;
  return names.flatMap((name) => (was[name] === undefined ? [] : [(record[name] ?? Number.NaN) - was[name]]));
}

test("the laws of rotation hold through every history", () => {
  const tally: Tally = new Map();
  fc.assert(
    fc.property(
      fc.constantFrom(...policies),
      fc.array(step, { minLength: 20, maxLength: 80, size: "max" }),
      (policy, steps) => {
        const world = new World(policy, tally);
        for (const step of steps) world.take(step);
      },
    ),
    { numRuns: soak(10_000) },
  );
  // The histories come by everything that there is to see.
  const everything = [
    "announced",
    "activated",
    "retired",
    "removed",
    "revoked",
    "imported",
    "restarted",
    "conflict",
    ...codes,
  ];
  assert.deepEqual(
    everything.filter((what) => (tally.get(what) ?? 0) < 5),
    [],
    JSON.stringify([...tally]),
  );
});
