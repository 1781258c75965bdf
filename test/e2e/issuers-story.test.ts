// Years of a platform with many tenants, in minutes: new tenants, a rotation, a rollback, tenants that leave, a leaked key, a restored backup, a
// leaked wrapping key. Cache lifetimes are shortened; the rules, the databases and the clock are real.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { decodeProtectedHeader, importJWK, jwtVerify } from "jose";
import { mapInParallel } from "../../src/base/async.ts";
import { cacheDirectives } from "../../src/base/cache-control.ts";
import type { createIssuers as CreateIssuers } from "../../src/rotation/issuers/issuers.ts";
import type { Issuers } from "../../src/rotation/issuers/types.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { codeWith, load } from "../replicas/changed.ts";
import { startEtcd } from "../support/etcd.ts";
import { newWrappingKey } from "../support/managed.ts";
import { startMariadb } from "../support/mariadb.ts";
import { skipWithout } from "../support/parts.ts";
import { startPostgres } from "../support/postgres.ts";
import { startRedis } from "../support/redis.ts";
import { type Scope, cliDone, temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";

const second = 1_000;
const [maxStaleSeconds, clockSkewSeconds] = [10, 5];
/** Longest time that caches keep a set, as shortened below. */
const cachedForSeconds = 3;
const initialPolicy = {
  rotateEveryDays: 1,
  maxStaleSeconds,
  clockSkewSeconds,
  cacheSlackSeconds: 0,
  announceForSeconds: maxStaleSeconds + cachedForSeconds + clockSkewSeconds,
  // A retiring key stays for longer, because each step takes a while for all tenants.
  maxTokenLifetimeSeconds: 100,
};
/** Time for which a retiring key stays published. */
const retireMs = (maxStaleSeconds + initialPolicy.maxTokenLifetimeSeconds + 2 * clockSkewSeconds) * second;
/** Time for which a revoked key may still be trusted. */
const trustedMs = (maxStaleSeconds + cachedForSeconds) * second;

/**
 * Issuers. With many more, reads take longer than maxStaleSeconds while other tests use both cores, and then tokens fail
 * as they should.
 */
const names = Array.from({ length: 150 }, (_, index) => `https://op.example/tenant-${index}`);

/** Tenants that leave. */
const gone = names.slice(-Math.ceil(names.length / 10));

type Open = (database: string, options: { readonly issuer: string }) => Register;
interface Database {
  readonly name: string;
  readonly parts: readonly string[];
  readonly file: string;
  readonly open: string;
  /** Whether a command can list its issuers. */
  readonly lists: boolean;
  start(t: Scope): Promise<string>;
}

const databases: readonly Database[] = [
  {
    name: "Redis",
    parts: ["redis-server"],
    file: "rotation/store/databases/redis.ts",
    open: "redisStore",
    lists: false,
    start: async (t) => `redis://:s3cret@127.0.0.1:${(await startRedis(t)).port}`,
  },
  {
    name: "PostgreSQL",
    parts: ["initdb"],
    file: "rotation/store/postgres/postgres.ts",
    open: "postgresStore",
    lists: true,
    async start(t) {
      const server = await startPostgres();
      t.after(async () => server.stop());
      return server.url();
    },
  },
  {
    name: "MariaDB",
    parts: ["mariadbd"],
    file: "rotation/store/databases/mysql.ts",
    open: "mysqlStore",
    lists: true,
    start: async (t) => `mysql://jwksd:s3cret@127.0.0.1:${(await startMariadb(t)).port}/jwksd`,
  },
  {
    name: "etcd",
    parts: ["etcd"],
    file: "rotation/store/databases/etcd.ts",
    open: "etcdStore",
    lists: true,
    start: async (t) => `http://127.0.0.1:${(await startEtcd(t))[0]?.daemon.port}`,
  },
];

interface Cached {
  readonly at: number;
  readonly keys: readonly { readonly kid: string }[];
  readonly maxAge: number;
  readonly whileRevalidated: number;
}

/** A cache as RFC 9111 and RFC 5861 describe it, of which verifiers have one each and share another. */
class Cache {
  readonly #sets = new Map<string, Cached>();
  readonly #origin: (issuer: string, isReload: boolean) => Promise<Cached>;

  constructor(origin: (issuer: string, isReload: boolean) => Promise<Cached>) {
    this.#origin = origin;
  }

  async get(issuer: string, isReload = false): Promise<Cached> {
    const held = this.#sets.get(issuer);
    const age = held === undefined ? Infinity : (Date.now() - held.at) / second;
    if (!isReload && held !== undefined && age < held.maxAge) return held;
    if (!isReload && held !== undefined && age < held.maxAge + held.whileRevalidated) {
      void this.#reload(issuer, false).catch(() => {});
      return held;
    }
    return this.#reload(issuer, isReload);
  }

  async #reload(issuer: string, isReload: boolean): Promise<Cached> {
    const set = await this.#origin(issuer, isReload);
    this.#sets.set(issuer, set);
    return set;
  }
}

/** An event in the history of a key or an issuer. */
interface Event {
  readonly name: string;
  readonly at: number;
}

/** Processes of a provider behind a load balancer and a shared cache, and a verifier that follows the endpoint specification. */
class World {
  /** Processes that get requests. While there are none, no set can be fetched. */
  processes: Issuers[] = [];
  /** Times from and until which tokens signed with a key may be refused, by kid. */
  readonly refusable = new Map<string, readonly [from: number, until: number]>();
  /** The kids of the tokens that were accepted or refused. A token is also refused if its set cannot be fetched. */
  readonly accepted: Event[] = [];
  readonly refused: Event[] = [];
  /** The issuers for which something was signed, or was not. */
  readonly signed: Event[] = [];
  readonly unsigned: (Event & { readonly code: string })[] = [];
  readonly #shared = new Cache((issuer) => this.#published(issuer));
  readonly #own = new Cache((issuer, isReload) => this.#shared.get(issuer, isReload));
  #attacks: Promise<void>[] = [];
  #traffic: Promise<void> = Promise.resolve();
  isOpen = false;
  #isOver = false;

  get process(): Issuers {
    const { processes } = this;
    return processes[Math.floor(Math.random() * processes.length)] ?? assert.fail("no process is running");
  }

  async #published(issuer: string): Promise<Cached> {
    const at = Date.now();
    const response = await this.process.fetch(new Request(`${issuer}/jwks`));
    if (response.status !== 200) throw new Error(`status ${response.status}`);
    const { maxAge = 0, whileRevalidated } = cacheDirectives(response.headers.get("cache-control") ?? "");
    const { keys } = (await response.json()) as Pick<Cached, "keys">;
    return { at, keys, maxAge, whileRevalidated };
  }

  /** Verifies a token; a kid that is not in the set makes it refetch the set once. */
  async #accepts(issuer: string, token: string, currentDate: Date): Promise<boolean> {
    const { kid } = decodeProtectedHeader(token);
    for (const isReload of [false, true]) {
      const key = (await this.#own.get(issuer, isReload)).keys.find((key) => key.kid === kid);
      if (key !== undefined) {
        await jwtVerify(token, await importJWK(key, "ES256"), { currentDate });
        return true;
      }
    }
    return false;
  }

  async #check(issuer: string, token: string, currentDate = new Date()): Promise<boolean> {
    const { kid: name = "" } = decodeProtectedHeader(token);
    const at = Date.now();
    const isAccepted = await this.#accepts(issuer, token, currentDate).catch(() => false);
    if (isAccepted) this.accepted.push({ name, at });
    return isAccepted;
  }

  async #checkValid(issuer: string, token: string): Promise<void> {
    const at = Date.now();
    if (!(await this.#check(issuer, token))) this.refused.push({ name: decodeProtectedHeader(token).kid ?? "", at });
  }

  /** Presents a token of an issuer again and again until the end, as if it never expired. */
  async attack(issuer: string): Promise<void> {
    const [token, signedAt] = [await sign(this.process, issuer), new Date()];
    const present = async (): Promise<void> => {
      while (!this.#isOver) {
        await this.#check(issuer, token, signedAt);
        await pause(50);
      }
    };
    this.#attacks.push(present());
  }

  /** Lets users of one tenant after another sign in. */
  open(): void {
    this.isOpen = true;
    this.#traffic = this.#signInUsers();
  }

  /** Stops sign-ins. Resolves when every token has been verified. */
  async shut(): Promise<void> {
    this.isOpen = false;
    await this.#traffic;
  }

  async finish(): Promise<void> {
    this.#isOver = true;
    await this.shut();
    await Promise.all(this.#attacks);
  }

  /** Signs for one tenant after another. Verifies each token immediately and again before it expires. */
  async #signInUsers(): Promise<void> {
    const later: Promise<void>[] = [];
    for (let turn = 0; this.isOpen; turn += 1) {
      // Every third one is a tenant that leaves.
      const name = (turn % 3 === 0 ? gone[(turn / 3) % gone.length] : names[turn % names.length]) as string;
      const at = Date.now();
      try {
        const token = await sign(this.process, name);
        this.signed.push({ name, at });
        await this.#checkValid(name, token);
        later.push(pause(800).then(() => this.#checkValid(name, token)));
      } catch (error) {
        this.unsigned.push({ name, at, code: (error as { code?: string }).code ?? String(error) });
      }
      await pause(10);
    }
    await Promise.all(later);
  }
}

await codeWith("story", [
  [
    "base/cache-control.ts",
    'long: "public, max-age=3600, stale-while-revalidate=3600"',
    'long: "public, max-age=2, stale-while-revalidate=1"',
  ],
  [
    "base/cache-control.ts",
    'rotation: "public, max-age=300, must-revalidate"',
    'rotation: "public, max-age=1, must-revalidate"',
  ],
]);

/** Works on ten at a time. On a busy machine, a call may take too long (`ERR_STORE_UNAVAILABLE`); nothing was written then, so it is repeated once. */
const forEach = <A, T>(all: readonly A[], work: (one: A) => Promise<T>): Promise<T[]> =>
  mapInParallel(all, 10, (one) =>
    work(one).catch((error: { code?: string }) => {
      if (error.code !== "ERR_STORE_UNAVAILABLE") throw error;
      return work(one);
    }),
  );

const sign = (process: Issuers, issuer: string): Promise<string> =>
  process.sign(issuer, { sub: "a" }, { lifetimeSeconds: 10 });

// Each database takes six minutes, in which the test mostly waits.
describe("years of a platform with many tenants", { concurrency: 2 }, () => {
  for (const database of isSoak ? databases : [])
    test(
      `in ${database.name}: no valid token is rejected, and no past key is trusted longer than documented`,
      {
        skip: skipWithout(...database.parts),
      },
      async (t) => {
        const url = await database.start(t);
        const { createIssuers } = await load<{ createIssuers: typeof CreateIssuers }>(
          "story",
          "rotation/issuers/issuers.ts",
        );
        const open = (await load<Record<string, Open>>("story", database.file))[database.open] as Open;
        // One connection or pool for all issuers of a process: a process here has its own register of each issuer.
        const registers = new Map<string, Register>();
        const shared = open(url, { issuer: "*" });
        t.after(async () => shared.close?.());
        const registerOf = (issuer: string): Register => {
          const known = registers.get(issuer) ?? shared.forIssuer?.(issuer) ?? open(url, { issuer });
          registers.set(issuer, known);
          return known;
        };
        t.after(async () => {
          for (const register of registers.values()) await register.close?.();
        });
        const [firstWrappingKey, nextWrappingKey] = [newWrappingKey(), newWrappingKey()];
        const started: Issuers[] = [];
        const start = async (...wrappingKeys: readonly string[]): Promise<Issuers> => {
          const issuers = await createIssuers({
            issuer: "https://op.example/*",
            store: registerOf,
            wrappingKeys,
            initialPolicy,
            refreshSeconds: 1,
            maxIssuers: names.length,
          });
          started.push(issuers);
          return issuers;
        };
        const world = new World();
        /** Replaces all processes. */
        const startAll = async (...wrappingKeys: readonly string[]): Promise<void> => {
          world.processes = [await start(...wrappingKeys), await start(...wrappingKeys)];
        };
        const jwksd = (args: readonly string[], wrappingKeys = firstWrappingKey) =>
          cliDone(t, args, {
            JWKSD_STORE: url.replace("http:", "etcd:"),
            JWKSD_WRAPPING_KEYS: wrappingKeys,
          });
        const began = Date.now();
        const log = (text: string): void => t.diagnostic(`${Math.round((Date.now() - began) / second)} s: ${text}`);
        /** The process on which the operator works, so that it has seen each step before the next one. */
        const operated = (): Issuers => world.processes[0] as Issuers;
        const keysOf = async (issuer: string) => ((await operated().get(issuer)) ?? assert.fail(issuer)).keys;
        const dueSteps = () => forEach(names, (issuer) => operated().runDueSteps(issuer));
        const recordsOf = async (issuer: string) => (await keysOf(issuer)).records;
        const records = async () => (await forEach(names, recordsOf)).flat();
        const kids = async (...states: readonly string[]) =>
          (await records()).filter(({ state }) => states.includes(state)).map(({ kid }) => kid);
        const activeOf = async (issuer: string) =>
          (await recordsOf(issuer)).find(({ state }) => state === "active")?.kid ?? assert.fail(issuer);

        await startAll(firstWrappingKey);
        await forEach(names, (issuer) => operated().create(issuer));
        world.open();
        t.after(() => world.finish());
        log("all tenants exist");

        // A rotation: announced, and active once every cache has it.
        const announced = await forEach(names, async (issuer) => {
          const { events } = await (await keysOf(issuer)).rotate();
          return events.findLast(({ type }) => type === "announced")?.kid ?? "";
        });
        await dueSteps();
        const backup = await forEach(
          names,
          async (issuer) => [issuer, (await registerOf(issuer).read()).text ?? ""] as const,
        );
        await pause(initialPolicy.announceForSeconds * second);
        for (let turns = 0; (await kids("active")).some((kid) => !announced.includes(kid)); turns += 1) {
          assert.ok(turns < 100);
          await pause(100);
          await dueSteps();
        }
        log("the next keys are active");

        // Back to the first key, for which no cache needs time.
        await forEach(names, async (issuer) => (await keysOf(issuer)).rollBack());
        const active = new Set(await kids("active"));
        assert.ok(announced.every((kid) => !active.has(kid)));
        log("the first keys are active again");
        await pause(1 * second);

        // Some tenants leave. Their tokens stay valid until they expire, unless their keys are revoked.
        const [leaving = "", evicted = ""] = gone;
        const goneNow = gone.filter((_, index) => index % 2 === 1);
        for (const issuer of [leaving, evicted]) await world.attack(issuer);
        const evictedKeys = (await forEach(goneNow, recordsOf)).flat().map(({ kid }) => kid);
        const decommissionedLines: object[] = [];
        const decommission = (now: boolean) => (issuer: string) => {
          decommissionedLines.push({ issuer, now, at: new Date().toISOString() });
          return operated().decommission(issuer, { now });
        };
        await forEach(gone, decommission(false));
        const goneAt = Date.now();
        const stopped = { code: "ERR_SIGNER_DECOMMISSIONED" };
        for (const issuer of gone)
          await assert.rejects(operated().create(issuer), { code: "ERR_ISSUER_DECOMMISSIONED" });
        await pause(second);
        for (const kid of evictedKeys) world.refusable.set(kid, [Date.now(), Infinity]);
        await forEach(goneNow, decommission(true));
        const evictedAt = Date.now();
        log("some tenants have left");

        // A key leaks.
        const [victim = "", other = ""] = names;
        await world.attack(victim);
        const leaked = await activeOf(victim);
        world.refusable.set(leaked, [Date.now(), Infinity]);
        await (await keysOf(victim)).revoke(leaked);
        const leakedAt = Date.now();
        log("a key is revoked");

        // Yesterday's backup is restored as docs/backups.md says: what must not come back ends again before a process starts.
        await pause(2 * second);
        await world.shut();
        const [former] = world.processes;
        world.processes = [];
        await forEach(backup, async ([issuer, text]) => {
          const register = registerOf(issuer);
          // A due step may come first.
          while (!(await register.write(text, (await register.read()).version)));
        });
        // A process that has seen later commits refuses the backup until it is restarted.
        await assert.rejects((former as Issuers).runDueSteps(victim), { code: "ERR_RECORDS_INVALID" });
        const file = join(await temporaryFolder(t), "decommissioned.txt");
        await writeFile(file, decommissionedLines.map((line) => JSON.stringify(line)).join("\n"));
        await jwksd(["decommission", "--from", file, "--yes"]);
        await jwksd(["keys", "revoke", leaked, "--issuer", victim, "--yes"]);
        const decommissionedAgainAt = Date.now();
        await startAll(firstWrappingKey);
        world.open();
        log("the backup is restored");

        // A tenant that has left is fully decommissioned when its last key is removed.
        const goneGracefully = gone.filter((issuer) => !goneNow.includes(issuer));
        const gracefulKeys = (await forEach(goneGracefully, recordsOf)).flat().map(({ kid }) => kid);
        assert.ok((await recordsOf(leaving)).some(({ state }) => state === "retiring"));
        const retiredBy = decommissionedAgainAt + retireMs;
        while (Date.now() < retiredBy + 3 * second) {
          await pause(second);
          await dueSteps();
        }
        for (const issuer of gone) {
          const response = await world.process.fetch(new Request(`${issuer}/jwks`));
          assert.match(await response.text(), /^\{"keys":\[\{[^}]*"kid":"issuer-decommissioned"[^}]*\}\]\}$/);
        }
        const removedBy = Date.now();
        await pause(trustedMs + second);
        log("the tenants that have left are fully decommissioned");

        // The wrapping key leaks: first comes a new one, and then all keys are revoked.
        await startAll(nextWrappingKey, firstWrappingKey);
        await world.attack(other);
        const stolen = await kids("active", "retiring", "announced");
        const before = Date.now();
        for (const kid of stolen) world.refusable.set(kid, [before, Infinity]);
        if (database.lists) await jwksd(["issuers", "revoke-keys", "--yes"], `${nextWrappingKey} ${firstWrappingKey}`);
        else
          await forEach(names, async (issuer) => {
            const keys = await keysOf(issuer);
            await keys.rewrap();
            for (const { kid, state } of keys.records)
              if (state !== "revoked" && state !== "removed") await keys.revoke(kid);
          });
        const revokedAt = Date.now();
        log(`all keys were revoked within ${revokedAt - before} ms`);
        // Caches do not have the new keys yet, because these were not announced.
        for (const kid of await kids("active")) world.refusable.set(kid, [before, revokedAt + trustedMs]);
        await pause(trustedMs + second);
        // Nothing needs the leaked wrapping key anymore.
        await startAll(nextWrappingKey);
        await dueSteps();
        await pause(second);
        await world.finish();

        const last = await records();
        const live = new Set(last.filter(({ state }) => state === "active").map(({ kid }) => kid));
        assert.equal(live.size, names.length - gone.length);
        assert.ok(stolen.every((kid) => !live.has(kid)));
        /** Latest time at which a key may be trusted, by kid. */
        const trustedUntil = new Map([
          ...last.flatMap((key) => ("endedAt" in key ? [[key.kid, key.endedAt + trustedMs] as const] : [])),
          ...gracefulKeys.map((kid) => [kid, removedBy + trustedMs] as const),
          ...evictedKeys.map((kid) => [kid, evictedAt + trustedMs] as const),
          [leaked, leakedAt + trustedMs],
        ]);
        const trusted = ({ name, at }: Event, ms: number): boolean => at > (trustedUntil.get(name) ?? Infinity) - ms;
        const wronglyRefused = world.refused.filter(({ name, at }) => {
          const [from, until] = world.refusable.get(name) ?? [Infinity, Infinity];
          return at < from || at > until;
        });
        assert.deepEqual([wronglyRefused, world.accepted.filter((token) => trusted(token, 0))], [[], []]);
        assert.ok(
          world.accepted.some((token) => trusted(token, trustedMs)),
          "caches trust a revoked key for a while",
        );

        const isGone = ({ name, at }: Event): boolean => gone.includes(name) && at > goneAt + maxStaleSeconds * second;
        assert.deepEqual(world.signed.filter(isGone), []);
        assert.deepEqual(
          world.unsigned.filter(({ name, code }) => !gone.includes(name) || code !== stopped.code),
          [],
        );
        for (const process of world.processes)
          for (const issuer of gone) await assert.rejects(sign(process, issuer), stopped);
        assert.ok(world.accepted.length > 100);
        log(
          `${world.accepted.length} tokens accepted, ${world.refused.length} refused, ${world.unsigned.length} not signed`,
        );
        for (const process of started) await process.close();
      },
    );
});
