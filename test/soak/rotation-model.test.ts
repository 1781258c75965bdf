import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { StateError } from "../../src/base/errors.ts";
import { type Change, type View, advance, leaseNextForMs } from "../../src/rotation/rules/advance.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import {
  type RotationPolicy,
  cachedForSeconds,
  rotationPolicy,
  signWithinSeconds,
} from "../../src/rotation/rules/policy.ts";
import {
  activeKey,
  checkAnnounced,
  checkRecords,
  isRotating,
  publishedKeys,
} from "../../src/rotation/rules/records.ts";
import { noteWaits, replicasBehind } from "../../src/rotation/rules/waits.ts";
import type { Committed, KeyEvent, KeyRecord, KeyUse, Lease } from "../../src/rotation/store/store.ts";
import { day, frozen, hour, newKey, second, start, year } from "../rotation/key-records.ts";
import { soak } from "../support/soak.ts";

/*
 * Several replicas work on one store: each loads, decides, and commits by compare-and-set, and in between the others do, or it
 * crashes. Each publishes and signs by the records that it has adopted, and tells so by its lease; it may be late with each of these, for
 * as long as it likes, and an answer of the store may get lost. The laws hold in true time, which only the model knows:
 * - No token is signed with a key that a replica which calls itself ready does not publish, or that a cache may not know.
 * - No key is removed while anybody may sign with it, while a token of it lives, or while a cache gives it to somebody who encrypts.
 * What an operator forces is no breach of them.
 *
 * Who signs without a lease signs within `signWithinSeconds` of a read of the store.
 *
 * Which clocks are covered: each is off by any number of whole years, and by up to half of clockSkewSeconds to either side, and is
 * set anew at any moment. So between the writing of a time and its reading, a clock has moved by
 * - at most clockSkewSeconds, which the policy adds to every bound; or
 * - forwards by more than any waiting time and an hour: such a wait is taken for missed, and starts again; or
 * - backwards by years: the wait ends when a whole one has passed by the monotonic clock of a replica that has seen it begin.
 * A clock that is set forwards by less than that is covered by the monotonic clocks alone, of processes that have seen the wait begin:
 * test/rotation/waits.test.ts. Leases end by true time; a replica takes its own for ended 1 % earlier.
 */

const policies: readonly RotationPolicy[] = [
  rotationPolicy(),
  rotationPolicy({ rotateEveryDays: 2, announceForSeconds: 15_000, cacheSlackSeconds: 7_000 }),
  rotationPolicy({
    rotateEveryDays: 60,
    announceForSeconds: 7_201,
    cacheSlackSeconds: 0,
    clockSkewSeconds: 1,
    leaseSeconds: 60,
  }),
  rotationPolicy({
    rotateEveryDays: 60,
    maxTokenLifetimeSeconds: 30 * 86_400,
    clockSkewSeconds: 1_800,
    leaseSeconds: 20_000,
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

type Wait = "moment" | "minute" | "lease" | "hour" | "announcement" | "retirement" | "period";

type Until = "decide" | "commit" | "adopt" | "switch" | "tell";

type Step =
  /** Those that renew go on doing what they do; the leases of the others may end. */
  | { readonly type: "wait"; readonly for: Wait; readonly plusMs: number; readonly renew: readonly number[] }
  /** Until a replica would wake, by its own clock. */
  | { readonly type: "sleep"; readonly replica: number; readonly plusMs: number; readonly renew: readonly number[] }
  | { readonly type: "set clock"; readonly replica: number; readonly years: number; readonly skew: number }
  | { readonly type: "join" | "load" | "commit" | "adopt" | "crash"; readonly replica: number }
  /** It tells what it does, or goes on to sign with another key; the answer may get lost. */
  | { readonly type: "tell" | "switch"; readonly replica: number; readonly isLost: boolean }
  | { readonly type: "decide"; readonly replica: number; readonly act: Act }
  /** All of that, one after the other; a slow replica stops in between. Meanwhile another one tells what it does. */
  | {
      readonly type: "turn";
      readonly replica: number;
      readonly act: Act;
      readonly until: Until;
      readonly meanwhile: number | undefined;
    };

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
const renew = fc.oneof(fc.constant(replicas), fc.subarray([...replicas]));
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      type: fc.constant<"wait">("wait"),
      for: fc.constantFrom<Wait>("moment", "minute", "lease", "hour", "announcement", "retirement", "period"),
      plusMs: fc.constantFrom(0, 0, 1, second, hour + 1),
      renew,
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant<"sleep">("sleep"),
      replica,
      plusMs: fc.constantFrom(-1, 0, 0, 0, hour, hour + 1),
      renew,
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
  { weight: 6, arbitrary: fc.record({ type: fc.constantFrom("join", "load", "commit", "commit", "adopt"), replica }) },
  { weight: 8, arbitrary: fc.record({ type: fc.constantFrom("tell", "switch"), replica, isLost: rarely }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant<"crash">("crash"), replica }) },
  { weight: 4, arbitrary: fc.record({ type: fc.constant<"decide">("decide"), replica, act }) },
  {
    weight: 14,
    arbitrary: fc.record({
      type: fc.constant<"turn">("turn"),
      replica,
      act,
      until: fc.oneof(
        { weight: 8, arbitrary: fc.constant<Until>("tell") },
        { weight: 2, arbitrary: fc.constantFrom<Until>("switch", "adopt", "commit", "decide") },
      ),
      meanwhile: fc.option(replica, { freq: 4, nil: undefined }),
    }),
  },
);

/** What the model knows about a key, in true time. */
interface Life {
  readonly announcedAt: number;
  readonly publishedAt?: number;
  /** Until when somebody may have signed with it, or given it to somebody who encrypts. */
  readonly usedUntil: number;
}

interface Decision extends Change {
  readonly revision: number;
  readonly before: readonly KeyRecord[];
  readonly decidedAt: number;
  readonly act: Act;
  /** The leases that it relies on. */
  readonly leases: readonly Lease[] | undefined;
}

interface Replica {
  offsetMs: number;
  seen?: (Committed & { readonly leases: readonly Lease[] }) | undefined;
  decision?: Decision | undefined;
  /** Until when it relies on its lease, in true time. */
  lease?: { readonly id: string; readonly endsAt: number } | undefined;
  /** What it knows that the others know. */
  told: Pick<Lease, "publishes" | "signsWith">;
  publishes?: Committed | undefined;
  signsWith?: string | undefined;
  /** When it saw each wait begin, by its clock and in true time. */
  waits: Map<string, { readonly clock: number; readonly at: number }>;
}

const nothing = { publishes: 0, signsWith: [] };

/** Sets that a replica served that was ready, and until when. */
interface Served {
  readonly until: number;
  readonly kids: readonly string[];
}

/** How often each thing came to pass in all histories. */
type Tally = Map<string, number>;

const count = (tally: Tally, what: string): unknown => tally.set(what, (tally.get(what) ?? 0) + 1);

class World {
  readonly #policy: RotationPolicy;
  readonly #tally: Tally;
  readonly #replicas: readonly Replica[] = replicas.map(() => ({ offsetMs: 0, told: nothing, waits: new Map() }));
  readonly #lives = new Map<string, Life>();
  /** Kids of keys that went before their time, because an operator asked for it. */
  readonly #forced = new Set<string>();
  #served: Served[] = [];
  #nowMs = start;
  #revision = 0;
  #records: readonly KeyRecord[] = [];
  #leases: readonly Lease[] = [];
  #made = 0;

  constructor(policy: RotationPolicy, tally: Tally) {
    this.#policy = policy;
    this.#tally = tally;
  }

  take(step: Step): void {
    if (step.type === "wait") {
      this.#pass(this.#lengthOf(step.for) + step.plusMs, step.renew);
      return;
    }
    const replica = this.#replicas[step.replica] as Replica;
    if (step.type === "sleep") {
      const now = this.#nowMs + replica.offsetMs;
      const { wakeAt } = advance(this.#records, this.#policy, now, { leftMs: this.#leftMs(replica) });
      if (wakeAt < Infinity) this.#pass(Math.max(wakeAt - now + step.plusMs, 0), step.renew);
    } else if (step.type === "set clock") {
      replica.offsetMs = step.years * year + Math.round((step.skew * this.#policy.clockSkewSeconds * second) / 2);
    } else if (step.type === "join") this.#join(replica);
    else if (step.type === "load") this.#load(replica);
    else if (step.type === "commit") this.#commit(replica);
    else if (step.type === "adopt") this.#adopt(replica);
    else if (step.type === "tell") this.#tell(replica, step.isLost);
    else if (step.type === "switch") this.#switch(replica, step.isLost);
    else if (step.type === "decide") this.#decide(replica, step.act);
    else if (step.type === "turn") this.#turn(replica, step);
    else this.#crash(replica);
    this.#checkSigners();
    this.#checkFollowed();
    this.#checkPlan(this.#nowMs + replica.offsetMs);
  }

  // ---- replicas and their leases

  #turn(replica: Replica, { act, until, meanwhile }: Extract<Step, { type: "turn" }>): void {
    this.#join(replica);
    this.#load(replica);
    this.#decide(replica, act);
    const other = meanwhile === undefined ? undefined : this.#replicas[meanwhile];
    if (other !== undefined && other !== replica) {
      this.#join(other);
      this.#adopt(other);
      this.#tell(other);
    }
    if (until === "decide") return;
    this.#commit(replica);
    if (until === "commit") return;
    this.#adopt(replica);
    if (until === "adopt") return;
    this.#switch(replica);
    if (until === "tell") this.#tell(replica);
  }

  #pass(ms: number, renew: readonly number[]): void {
    const renewing = renew.map((index) => this.#replicas[index] as Replica).filter((replica) => this.#holds(replica));
    this.#nowMs += ms;
    for (const replica of renewing) this.#renew(replica, this.#leaseOf(replica));
    this.#leases = this.#leases.filter(({ until }) => until > this.#nowMs);
  }

  get #leaseMs(): number {
    return this.#policy.leaseSeconds * second;
  }

  #holds({ lease }: Replica): boolean {
    return lease !== undefined && this.#nowMs < lease.endsAt;
  }

  #isReady(replica: Replica): boolean {
    return this.#holds(replica) && replica.told.publishes > 0;
  }

  #leaseOf({ lease }: Replica): Lease | undefined {
    return this.#leases.find(({ id }) => id === lease?.id);
  }

  #renew(replica: Replica, next: Lease | undefined, isLost = false): void {
    if (next === undefined) return this.#end(replica);
    const { id, publishes, signsWith } = next;
    const renewed = { ...next, until: this.#nowMs + this.#leaseMs };
    this.#leases = this.#leases.map((other) => (other.id === id ? renewed : other));
    if (isLost) return void count(this.#tally, "lost");
    replica.told = { publishes, signsWith };
    replica.lease = { id, endsAt: this.#nowMs + this.#leaseMs * 0.99 };
  }

  #join(replica: Replica): void {
    if (this.#holds(replica)) return;
    this.#end(replica);
    const id = `lease ${(this.#made += 1)}`;
    const until = this.#nowMs + this.#leaseMs;
    this.#leases = [...this.#leases, { id, name: id, ...nothing, serial: 0, forMs: this.#leaseMs, until }];
    replica.lease = { id, endsAt: this.#nowMs + this.#leaseMs * 0.99 };
  }

  /** What it does no more, or what the others no longer rely on. */
  #end(replica: Replica): void {
    if (replica.lease !== undefined && !this.#holds(replica)) count(this.#tally, "fenced");
    this.#note(replica);
    replica.told = nothing;
    replica.lease = replica.seen = replica.publishes = replica.signsWith = undefined;
  }

  #crash(replica: Replica): void {
    this.#end(replica);
    replica.decision = undefined;
    replica.waits.clear();
  }

  /** Notes what a replica has done until now, or until its lease ended, before it does something else. */
  #note(replica: Replica): void {
    const until = Math.min(this.#nowMs, replica.lease?.endsAt ?? -Infinity);
    if (replica.signsWith !== undefined) this.#use(replica.signsWith, until);
    if (replica.told.publishes === 0 || replica.publishes === undefined) return;
    const kids = publishedKids(replica.publishes);
    this.#served = [...this.#served.filter(({ until }) => this.#isCached(until)), { until, kids }];
    for (const { kid } of publishedKeys(replica.publishes.records, "enc")) this.#use(kid, until);
  }

  #use(kid: string, until: number): void {
    const life = this.#lives.get(kid);
    if (life !== undefined) this.#lives.set(kid, { ...life, usedUntil: Math.max(life.usedUntil, until) });
  }

  /** Whether a cache may still have a copy of a set that was served until then. */
  #isCached(until: number): boolean {
    return this.#nowMs < until + (cachedForSeconds.long + this.#policy.cacheSlackSeconds) * second;
  }

  /** Publishes what it has seen. It goes on signing with the key that it had, if that is published. */
  #adopt(replica: Replica): void {
    const { seen } = replica;
    if (seen === undefined || seen.revision === 0 || !this.#holds(replica)) return;
    this.#note(replica);
    replica.publishes = seen;
    const { signsWith = "" } = replica;
    if (!publishedKids(seen).includes(signsWith)) replica.signsWith = undefined;
  }

  /** Signs with the active key of what it publishes, when the others know that. */
  #switch(replica: Replica, isLost = false): void {
    const { publishes, told } = replica;
    const next = activeKey(publishes?.records ?? [], "sig")?.kid;
    if (next === undefined || next === replica.signsWith || !this.#holds(replica)) return;
    const lease = this.#leaseOf(replica);
    if (!told.signsWith.includes(next)) {
      if (lease !== undefined && publishes?.revision !== this.#revision) return void count(this.#tally, "too late");
      this.#renew(replica, lease && { ...lease, ...told, signsWith: [...told.signsWith, next] }, isLost);
    }
    if (!replica.told.signsWith.includes(next)) return;
    this.#note(replica);
    replica.signsWith = next;
  }

  #tell(replica: Replica, isLost = false): void {
    const { publishes, signsWith, lease } = replica;
    if (lease === undefined || publishes === undefined) return;
    const kids = signsWith === undefined ? [] : [signsWith];
    const known = this.#leaseOf(replica);
    this.#renew(replica, known && { ...known, publishes: publishes.revision, signsWith: kids }, isLost);
  }

  /** A wait is over when its time and the monotonic clock say so, or when a whole one has passed by the monotonic clock. */
  #leftMs(replica: Replica): NonNullable<View["leftMs"]> {
    return ({ kid, state }, { since, forMs }) => {
      const clock = this.#nowMs + replica.offsetMs;
      const name = `${kid} ${state} ${since}`;
      const first = replica.waits.get(name) ?? { clock, at: this.#nowMs };
      replica.waits.set(name, first);
      const passed = this.#nowMs - first.at;
      const end = since + forMs;
      return Math.max(Math.min(Math.max(end - clock, end - first.clock - passed), forMs - passed), 0);
    };
  }

  // ---- what they decide

  #lengthOf(wait: Wait): number {
    const { announceForSeconds, maxTokenLifetimeSeconds, clockSkewSeconds, rotateEveryDays } = this.#policy;
    const announcement = announceForSeconds * second;
    const retirement = (maxTokenLifetimeSeconds + 2 * clockSkewSeconds) * second;
    return {
      moment: 0,
      minute: 60 * second,
      hour,
      announcement,
      retirement,
      period: rotateEveryDays * day,
      lease: this.#leaseMs,
    }[wait];
  }

  #load(replica: Replica): void {
    replica.seen = { revision: this.#revision, records: this.#records, leases: this.#leases };
  }

  #decide(replica: Replica, act: Act): void {
    const { seen } = replica;
    replica.decision = undefined;
    if (seen === undefined) return;
    try {
      const change = frozen(this.#enact(act, replica, seen));
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

  #enact(
    act: Act,
    replica: Replica,
    { records, ...replicas }: NonNullable<Replica["seen"]>,
  ): Pick<Decision, "records" | "events" | "leases"> {
    const policy = this.#policy;
    const now = this.#nowMs + replica.offsetMs;
    const kid = (which: number): string => records[which % Math.max(records.length, 1)]?.kid ?? "none";
    const fresh = (use: KeyUse) => newKey(`key ${(this.#made += 1)}`, use);
    const noted = (change: Change, announces = false): Change => ({
      ...change,
      records: noteWaits(change.records, policy, { announces }),
    });
    const command = (command: Command) => ({
      ...noted(applyCommand(records, command, policy, now)),
      leases: undefined,
    });
    switch (act.type) {
      case "advance": {
        const announced = records.filter(({ state }) => state === "announced").map(({ kid }) => kid);
        const cannotSign = new Set(act.heldBack ? announced : []);
        const leftMs = this.#leftMs(replica);
        const { due, reliesOnReplicas, ...planned } = advance(records, policy, now, { replicas, cannotSign, leftMs });
        const change = due.reduce<Change>((change, use) => announce(change, fresh(use), now, "it is time"), planned);
        for (const record of records.filter(
          ({ state, publishedAt }) => state === "announced" && publishedAt === undefined,
        ))
          if (replicasBehind(record, replicas).length > 0) count(this.#tally, "held up");
        return { ...noted(change, true), leases: reliesOnReplicas ? replicas.leases : undefined };
      }
      case "claim": {
        const active = activeKey(records, "sig");
        if (active === undefined || !advance(records, policy, now).due.includes("sig"))
          return { records, events: [], leases: undefined };
        const claimed = { ...active, successorLease: { by: "somebody", until: now + leaseNextForMs } };
        return {
          records: records.map((record) => (record === active ? claimed : record)),
          events: [],
          leases: undefined,
        };
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
    const { records, leases } = decision;
    if (decision.revision !== this.#revision) return void count(this.#tally, "conflict");
    if (leases !== undefined && !isDeepStrictEqual(leases.map(toldBy), this.#leases.map(toldBy)))
      return void count(this.#tally, "leases changed");
    this.#checkCommit(decision);
    this.#records = records;
    this.#revision += 1;
    this.#load(replica);
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
    checkAnnounced(records);
    this.#checkPublished(records);
  }

  /** A key that is new, and all that happened to it at once. */
  #added(record: KeyRecord, before: readonly KeyRecord[], act: Act, now: number): string[] {
    const { kid, use, state } = record;
    const type =
      act.type === "import" && !(act.state === "announced" && state === "announced") ? "imported" : "announced";
    this.#lives.set(kid, { announcedAt: now, usedUntil: state === "retiring" ? this.#nowMs : -Infinity });
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
        this.#checkNotes(was, record, now);
        return [];
      case "announced to active":
        if (record.unannounced === true) assert.ok(forces(act), `${kid} signs early, and nobody asked for that`);
        else {
          const publishedFor = now - (life.publishedAt ?? Infinity);
          assert.ok(
            publishedFor >= (announceForSeconds - clockSkewSeconds) * second,
            `${kid} signs after ${publishedFor} ms`,
          );
        }
        return [`activated ${kid}`];
      case "active to retiring":
        // Who has just read it may sign with it for a while.
        if (use === "sig") this.#use(kid, this.#nowMs + signWithinSeconds * second);
        break;
      case "announced to retiring":
        // One that somebody may have encrypted to is withdrawn, not removed.
        assert.deepEqual([use, act.type], ["enc", "remove"]);
        break;
      case "announced to removed":
        assert.ok(act.type === "remove" && (use === "sig" || act.force), how);
        break;
      case "retiring to removed":
        assert.ok(act.type === "remove" || act.type === "advance", how);
        if (act.type === "advance" || !act.force) {
          const neededUntil = this.#neededUntil(kid, use);
          assert.ok(now >= neededUntil, `${kid} leaves ${neededUntil - now} ms too early`);
        } else this.#forced.add(kid);
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
    if (record.state === "revoked") this.#forced.add(kid);
    if (record.state === "removed" || record.state === "revoked") {
      this.#lives.delete(kid);
      assert.equal(record.privateHalf, undefined);
    } else assert.deepEqual(record.privateHalf, was.privateHalf);
    return `${names[record.state]} ${kid}`.split(",");
  }

  /** Of a record that is in the state in which it was, only notes have changed, and no wait begins earlier than it did. */
  #checkNotes(was: KeyRecord, record: KeyRecord, now: number): void {
    const { kid } = record;
    assert.deepEqual(withoutNotes(was), withoutNotes(record));
    for (const name of ["publishedAt", "unusedAt"] as const) {
      const [before, after] = [was[name], record[name]];
      if (before !== undefined) assert.ok((after ?? -Infinity) >= before, `${name} of ${kid} was set back`);
      else if (after !== undefined) count(this.#tally, name);
    }
    if (record.publishedAt === was.publishedAt) return;
    this.#lives.set(kid, { ...(this.#lives.get(kid) as Life), publishedAt: now });
  }

  /** Until when a token that it signed is valid somewhere, or a cache gives it to somebody who encrypts; in true time. */
  #neededUntil(kid: string, use: KeyUse): number {
    const { maxTokenLifetimeSeconds, clockSkewSeconds, cacheSlackSeconds } = this.#policy;
    for (const replica of this.#replicas) this.#note(replica);
    const cachedSeconds = use === "enc" ? cachedForSeconds.long + cacheSlackSeconds : 0;
    const { usedUntil } = this.#lives.get(kid) as Life;
    return usedUntil + (maxTokenLifetimeSeconds + clockSkewSeconds + cachedSeconds) * second;
  }

  /** A wait has begun for which every replica has followed; none of them goes back. */
  #checkFollowed(): void {
    const ready = this.#replicas.filter((replica) => this.#isReady(replica));
    for (const { kid, use, state, publishedAt, unusedAt } of this.#records) {
      const publish = ready.filter(({ publishes }) =>
        publishedKeys(publishes?.records ?? [], use).some((published) => published.kid === kid),
      );
      if (state === "announced" && publishedAt !== undefined) {
        assert.equal(publish.length, ready.length, `a replica that is ready does not publish ${kid}`);
      }
      if (state !== "retiring" || unusedAt === undefined) continue;
      if (use === "enc") assert.equal(publish.length, 0, `a replica still publishes ${kid}`);
      const signs = this.#replicas.filter((replica) => replica.signsWith === kid && this.#holds(replica));
      assert.equal(signs.length, 0, `a replica still signs with ${kid}`);
    }
  }

  /** Each key that a replica may sign with is published by all that are ready, and known to all caches. */
  #checkSigners(): void {
    const ready = this.#replicas.filter((replica) => this.#isReady(replica));
    const served = ready.map(({ publishes }) => publishedKids(publishes as Committed));
    const cached = this.#served.filter(({ until }) => this.#isCached(until)).map(({ kids }) => kids);
    for (const replica of this.#replicas) {
      const { signsWith: kid } = replica;
      if (kid === undefined || !this.#holds(replica) || this.#forced.has(kid)) continue;
      const record = this.#records.find((record) => record.kid === kid);
      assert.ok(record?.state === "active" || record?.state === "retiring", `${kid} signs, and is ${record?.state}`);
      if (record.unannounced === true) continue;
      count(this.#tally, "signs");
      assert.ok(!served.some((kids) => !kids.includes(kid)), `${kid} signs, and a replica does not publish it`);
      assert.ok(!cached.some((kids) => !kids.includes(kid)), `${kid} signs, and a cache may not know it`);
    }
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
    const { records: _, events: _events, reliesOnReplicas: _relies, ...plan } = once;
    assert.deepEqual(twice, { ...plan, records: once.records, events: [], reliesOnReplicas: false });
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

const toldBy = ({ id, publishes, signsWith }: Lease) => ({ id, publishes, signsWith });

const publishedKids = ({ records }: Committed): string[] => publishedKeys(records, "sig").map(({ kid }) => kid);

const notes = new Set(["publishedAt", "unusedAt", "announceForSeconds", "retireForSeconds", "successorLease"]);

const withoutNotes = (record: KeyRecord): unknown =>
  Object.fromEntries(Object.entries(record).filter(([name]) => !notes.has(name)));

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
    { numRuns: soak(3_000, 1_000) },
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
    "leases changed",
    "publishedAt",
    "unusedAt",
    "held up",
    "signs",
    "fenced",
    "too late",
    "lost",
    ...codes,
  ];
  assert.deepEqual(
    everything.filter((what) => (tally.get(what) ?? 0) < 5),
    [],
    JSON.stringify([...tally]),
  );
});
