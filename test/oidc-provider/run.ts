import { join } from "node:path";
import type { TestContext } from "node:test";
import { createRemoteJWKSet, jwtVerify } from "jose";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { memoryFolder } from "../support/service.ts";
import type { Config } from "./replica.ts";
import { Site } from "./site.ts";
import { type IdToken, type Tally, User } from "./user.ts";

/*
 * Real users of a real client log in all the time at a real oidc-provider, while its keys rotate. Time is told, to all processes alike: between two
 * steps of a rotation it jumps, in leaps that clocks bear, and users wait; a second before each step it goes on, and so do they.
 */

export const hour = 3_600_000;
const startMs = Date.parse("2026-11-20T12:00:00Z");
const [second, leapMs] = [1_000, 3_300_000];
const audience = "app";

type Keys = Config["keys"];

/** Verifiers that have their sets from `jwks_uri`, and keep them as they do everywhere. */
function verifiersOf(issuer: string) {
  const verifyBy = (keys: Parameters<typeof jwtVerify>[1]) => (token: string) =>
    jwtVerify(token, keys as never, { issuer, audience });
  const clock = { now: () => Date.now(), setTimer: () => () => {} };
  return {
    createRemoteKeySet: verifyBy(createRemoteKeySet({ issuer, clock })),
    createRemoteJWKSet: verifyBy(createRemoteJWKSet(new URL(`${issuer}/jwks`))),
  };
}

const counted = (texts: readonly string[]): string[] =>
  [...Map.groupBy(texts, (text) => text)].map(([text, { length }]) => `${length}: ${text}`);

/** Users, processes, verifiers and time; and what went wrong. */
export class Run {
  readonly tally: Tally = {
    done: { logins: 0, "silent logins": 0, "user infos": 0, introspections: 0 },
    tokens: [],
  };
  readonly refused: Record<string, number> = {};
  readonly failed: string[] = [];
  /** Visits that failed while a process was killed, or the key that signs was revoked. */
  readonly interrupted: string[] = [];
  readonly site: Site;
  readonly #t: TestContext;
  readonly #issuer: string;
  readonly #sessions: string;
  readonly #keys: () => Keys;
  #isInterrupting = false;
  /** Errors that oidc-provider has told. */
  readonly #told: string[] = [];
  readonly #verifiers: ReturnType<typeof verifiersOf>;
  #users: readonly User[] = [];
  #names = 0;
  #nowMs = startMs;

  static async start(t: TestContext, keys: () => Keys): Promise<Run> {
    t.mock.timers.enable({ apis: ["Date"], now: startMs });
    const site = new Site(t);
    const run = new Run(t, site, await site.listen(), join(await memoryFolder(t), "sessions.db"), keys);
    for (let count = 0; count < 2; count += 1) await run.add();
    run.#users = await Promise.all(["ann", "bob", "eve", "joe"].map((name) => User.of(run.#issuer, name, run.tally)));
    return run;
  }

  private constructor(t: TestContext, site: Site, issuer: string, sessions: string, keys: () => Keys) {
    this.#t = t;
    this.site = site;
    this.#issuer = issuer;
    this.#sessions = sessions;
    this.#keys = keys;
    this.#verifiers = verifiersOf(issuer);
  }

  async add(): Promise<void> {
    const [issuer, nowMs, sessions, keys] = [this.#issuer, this.#nowMs, this.#sessions, this.#keys()];
    await this.site.add({ name: `replica ${(this.#names += 1)}`, issuer, nowMs, sessions, keys });
  }

  /** The kids of keys in these states, as the first process has them. */
  inState(...states: readonly string[]): string[] {
    const all = this.site.replicas[0]?.said.states ?? [];
    return all.filter(([, state]) => states.includes(state)).map(([kid]) => kid);
  }

  /** Time passes at all processes, and nobody logs in. */
  async leapTo(atMs: number): Promise<void> {
    while (this.#nowMs < atMs) {
      // A verifier sees a token of each key once more in its last second.
      const last = this.#lastOfEachKey().map(({ exp }) => exp * second - second);
      const next = [atMs, this.#nowMs + leapMs, ...last].filter((ms) => ms > this.#nowMs);
      await this.#pass(Math.min(...next) - this.#nowMs);
      await this.#verify(this.#lastOfEachKey().filter(({ exp }) => exp * second - second === this.#nowMs));
    }
  }

  /** Four users visit without pause, until something is done. */
  async visitWhile(work: () => Promise<unknown>): Promise<void> {
    const done = new AbortController();
    const visits = this.#users.map(async (user) => {
      while (!done.signal.aborted) {
        await user.visit().catch((error: Error) => {
          const { message, cause } = error;
          const text = `${message} ${JSON.stringify(cause instanceof Error ? cause.message : (cause ?? ""))}`;
          (this.#isInterrupting ? this.interrupted : this.failed).push(text);
        });
      }
    });
    await work();
    done.abort();
    await Promise.all(visits);
    await this.#verify(this.tally.tokens.slice(-4));
  }

  /** The same, and visits may fail: their process is killed, or their key revoked. */
  async visitDuring(work: () => Promise<unknown>): Promise<void> {
    this.#isInterrupting = true;
    await this.visitWhile(work);
    this.#isInterrupting = false;
  }

  /** A new process takes the place of another. */
  async restart(): Promise<void> {
    await this.add();
    await this.visitWhile(() => this.site.retire());
  }

  /** Goes to the next step of the plan, which is taken while users log in. */
  async step(mostMs: number = 6 * hour): Promise<void> {
    const nextAt = Math.min(...this.site.replicas.map(({ said }) => said.nextAt));
    await this.leapTo(Math.min(nextAt, this.#nowMs + mostMs) - second);
    await this.visitWhile(async () => {
      // A token of the key that signed until now is accepted until it ends.
      const { length } = this.tally.tokens;
      while (this.tally.tokens.length === length && this.failed.length === 0) await new Promise(setImmediate);
      for (let count = 0; count < 3; count += 1) await this.#pass(second);
    });
  }

  /** Forgets the tokens of a revoked key. */
  forget(revoked: string): void {
    for (const user of this.#users) if (user.hint?.kid === revoked) user.hint = undefined;
    this.tally.tokens.splice(0, Infinity, ...this.tally.tokens.filter(({ kid }) => kid !== revoked));
  }

  report(): string {
    const { done, tokens } = this.tally;
    const [failed, told] = [counted(this.failed), counted(this.#told)];
    return JSON.stringify({
      ...done,
      tokens: tokens.length,
      failed,
      told,
      interrupted: this.interrupted,
      refused: this.refused,
    });
  }

  #lastOfEachKey(): IdToken[] {
    const recent = this.tally.tokens.filter(({ exp }) => exp * second > this.#nowMs);
    return [...new Map(recent.map((token) => [token.kid, token])).values()];
  }

  async #pass(ms: number): Promise<void> {
    this.#nowMs += ms;
    await Promise.all(this.site.replicas.map((replica) => replica.ask({ type: "pass", ms })));
    this.#t.mock.timers.setTime(this.#nowMs);
    for (const { said } of this.site.replicas) this.#told.push(...said.errors);
  }

  async #verify(tokens: readonly IdToken[]): Promise<void> {
    for (const { text } of tokens) {
      for (const [name, verify] of Object.entries(this.#verifiers)) {
        this.refused[name] ??= 0;
        await verify(text).catch(() => void ((this.refused[name] as number) += 1));
      }
    }
  }
}
