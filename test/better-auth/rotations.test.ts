// better-auth in two processes over one PostgreSQL, with keys of jwksd and, beside them, with its own: users log in whenever keys
// change, a key is revoked, and processes end. Time is simulated; all requests, processes and the database are real.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import pg from "pg";
import { skipWithout } from "../support/parts.ts";
import { startPostgres } from "../support/postgres.ts";
import { freePort } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { setUp } from "./auth.ts";
import { startBalancer } from "./balancer.ts";
import { type Op, type Settings, startOp } from "./op.ts";
import { Interrupted, type Issued, Refused, createUser } from "./users.ts";
import { createWatch } from "./verifiers.ts";

const rotations = 8;
/** Less than the clocks may differ, because the processes go on one after the other, and than a token lives. */
const stepMs = 3_300_000;
const policy = {
  rotateEveryDays: 35_500 / 86_400,
  announceForSeconds: 14_200,
  clockSkewSeconds: 3_400,
  cacheSlackSeconds: 0,
  maxTokenLifetimeSeconds: 3_600,
  maxStaleSeconds: 3_600,
};
const skip = skipWithout("initdb");
/** Whose keys: those of jwksd, or those of better-auth itself. */
type Which = "managed" | "own";
const which: readonly Which[] = ["managed", "own"];
/** How logins ended that did not fail. */
const none = () => ({ logins: 0, interrupted: 0, revoked: 0 });

if (isSoak)
  test(
    `better-auth: ${rotations} rotations, a revocation, two restarts and a kill: no login fails, and no token is refused`,
    { skip },
    async (t) => {
      const cleanups: (() => Promise<unknown>)[] = [];
      t.after(async () => {
        for (const cleanup of cleanups.toReversed()) await cleanup();
      });
      const server = await startPostgres();
      cleanups.push(() => server.stop());
      for (const name of ["managed", "own"]) server.sql(`CREATE DATABASE ${name}`);
      const world = {
        now: Date.parse("2026-11-20T12:00:00Z"),
        removed: 0,
        active: "",
        announcedAt: Infinity,
        nextAt: 0,
        ownNextAt: 0,
      };
      const databaseClock = await simulateClock(server.url(), world.now);
      cleanups.push(() => databaseClock.end());

      const running = new Map<string, Op>();
      const origin = await startBalancer(t, () => Array.from(running.values(), ({ port }) => port));
      const databases = { jwksd: server.url(), managed: server.url("managed"), own: server.url("own") };
      const rotateEverySeconds = policy.rotateEveryDays * 86_400;
      const start = async (name: string): Promise<void> => {
        const settings: Settings = {
          origin,
          port: await freePort(),
          databases,
          policy,
          rotateEverySeconds,
          now: world.now,
        };
        running.set(name, await startOp(settings));
      };
      cleanups.push(() => Promise.all(Array.from(running.values(), (op) => op.kill())));
      await setUp({ origin, basePath: "/api/auth", url: databases.managed, jwt: {} });
      await setUp({ origin, basePath: "/own", url: databases.own, jwt: {} });
      await start("a");
      await start("b");

      mock.timers.enable({ apis: ["Date"], now: world.now });
      t.after(() => mock.timers.reset());
      const watched = {
        managed: createWatch(`${origin}/api/auth`),
        own: createWatch(`${origin}/own`),
      };
      const counts = { managed: none(), own: none() };
      const failed: Record<Which, Record<string, number>> = { managed: {}, own: {} };
      const usersOf = (which: Which, count: number) =>
        Array.from({ length: count }, (_, number) => createUser(watched[which].issuer, `user-${number}`));
      const users = { managed: usersOf("managed", 4), own: usersOf("own", 2) };
      const visit = async (which: Which, logIn: () => Promise<Issued[]>): Promise<void> => {
        try {
          watched[which].seen(await logIn());
          counts[which].logins += 1;
        } catch (error) {
          if (isInterruption(error)) counts[which].interrupted += 1;
          else if (error instanceof Refused && watched[which].revoked.has(error.kid ?? "")) counts[which].revoked += 1;
          else failed[which][String(error)] = (failed[which][String(error)] ?? 0) + 1;
        }
      };
      /** Users log in, and something happens while they do so once more. */
      const during = async (work: () => Promise<unknown>, whose: readonly Which[] = which): Promise<void> => {
        const visits = () => whose.flatMap((one) => users[one].map((logIn) => visit(one, logIn)));
        await Promise.all(visits());
        await Promise.all([...visits(), work()]);
      };
      const pass = async (): Promise<void> => {
        world.now += stepMs;
        // Those that keep a set for a time have asked just before a key changes.
        mock.timers.setTime(world.now);
        await Promise.all(which.map((one) => watched[one].poll()));
        await databaseClock.set(world.now);
        for (const op of running.values()) Object.assign(world, await op.ask({ type: "time", now: world.now }));
      };
      const step = async (): Promise<void> => {
        const changesAt = { managed: world.nextAt, own: world.ownNextAt };
        const whose = which.filter((one) => changesAt[one] <= world.now + stepMs);
        await during(pass, whose);
        // better-auth makes a key when it signs after the end of the old one.
        if (whose.includes("own")) world.ownNextAt = world.now + rotateEverySeconds * 1000;
        await Promise.all(which.map((one) => watched[one].lookAgain(stepMs / 1000)));
      };
      const restart = async (name: string): Promise<void> => {
        const op = running.get(name) as Op;
        // Its last requests end first.
        await during(async () => running.delete(name));
        await op.ask({ type: "stop" });
        await start(name);
      };

      let byKill = 0;
      const events: [at: number, name: string, happen: () => Promise<unknown>][] = [
        [0.1, "restart of a", () => restart("a")],
        [0.3, "restart of b", () => restart("b")],
        [
          0.5,
          "SIGKILL of b",
          async () => {
            const before = counts.managed.interrupted;
            await during(async () => running.get("b")?.kill());
            byKill = counts.managed.interrupted - before;
            running.delete("b");
            await start("b");
          },
        ],
        [
          0.7,
          "revocation",
          async () => {
            // The next key has been announced for longer than any cache keeps a set.
            while (world.now < world.announcedAt + 7_200_000) await step();
            watched.managed.revoked.add(world.active);
            await during(async () => running.get("a")?.ask({ type: "revoke" }));
          },
        ],
      ];
      const began = world.now;
      while (events.length > 0 || world.removed < rotations) {
        await step();
        const [[share, name, happen] = []] = events;
        const passedSeconds = (world.now - began) / 1000;
        if (happen === undefined || passedSeconds < (share ?? 0) * rotations * rotateEverySeconds) continue;
        events.shift();
        await happen();
        t.diagnostic(`${name}: ${world.removed} keys are removed`);
      }

      for (const one of which) {
        const { verified, refused } = watched[one];
        t.diagnostic(`${one}: ${JSON.stringify({ ...counts[one], failed: failed[one], verified, refused })}`);
      }
      assert.deepEqual([failed.managed, watched.managed.refused], [{}, {}]);
      assert.ok(counts.managed.logins > rotations);
      assert.equal(counts.managed.interrupted, byKill, "only requests at the killed process");
      assert.ok(counts.managed.revoked <= users.managed.length, "only logins under way at the revocation");
      if (which.includes("own")) assert.notDeepEqual(watched.own.refused, {}, "better-auth's own rotation");
      for (const { troubles } of running.values()) assert.deepEqual(troubles, []);
    },
  );

/** A database whose clock stands still until it is set. */
async function simulateClock(url: string, now: number) {
  const connection = new pg.Client(url);
  await connection.connect();
  await connection.query(`
    CREATE SCHEMA simulated;
    CREATE TABLE simulated.clock AS SELECT to_timestamp(${now / 1000}) AS now;
    CREATE FUNCTION simulated.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS 'SELECT now FROM simulated.clock';
    ALTER DATABASE postgres SET search_path = simulated, pg_catalog, public;`);
  return {
    set: (ms: number) => connection.query(`UPDATE simulated.clock SET now = to_timestamp(${ms / 1000})`),
    end: () => connection.end(),
  };
}

/** better-fetch wraps what its fetch throws. */
const isInterruption = (error: unknown): boolean =>
  error instanceof Interrupted || (error as { cause?: unknown }).cause instanceof Interrupted;
