import type { ServiceManager } from "../../src/rotation/manager/manager.ts";
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import * as jose from "jose";
import { type Provider, createProvider } from "../../src/index.ts";
import { createRemoteKeySet } from "../../src/library/relying-party/index.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { makeLocalKey } from "../../src/rotation/manager/make-key.ts";

import { type RotationPolicyOptions, cachedForSeconds } from "../../src/rotation/rules/policy.ts";
import { activeKey, publishedKeys } from "../../src/rotation/rules/records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { type SimulatedClock, settled, simulatedClock } from "../support/simulated.ts";
import { second } from "../rotation/key-records.ts";
import { createServiceManager, createWrapping } from "../support/managed.ts";
import { soak } from "../support/soak.ts";

/*
 * A provider whose keys a manager rotates signs tokens day and night, on a simulated clock, and three kinds of verifiers verify them
 * from their first second to their last one.
 */

const issuer = "https://op.example";
const audience = "relying-party";
const lifetimeSeconds = 3600;
const skewSeconds = 300;
const wrappingKey = Buffer.alloc(32, 1).toString("base64url");

/** As often as can be, with as little time for each step as the policy allows. */
const hasty: RotationPolicyOptions = { rotateEveryDays: 33_910 / 86_400, announceForSeconds: 15_005 };

interface Token {
  readonly text: string;
  readonly kid: string;
  /** When the slowest verifier's clock says that it has expired. */
  readonly validUntil: number;
}

/** Who verifies; it throws what it has against a token. */
interface Verifier {
  readonly name: string;
  verify(token: Token): Promise<unknown>;
}

interface Copy {
  readonly keys: readonly (jose.JWK & { readonly kid: string })[];
  readonly cacheControl: string;
  readonly until: number;
}

/** A cache that keeps a copy for as long as it may, to the last second of stale-while-revalidate, and says nothing about its age. */
function cache(
  clock: SimulatedClock,
  fetch: () => Promise<Pick<Copy, "keys" | "cacheControl">>,
  firstForSeconds: number = cachedForSeconds.long,
) {
  let copy: Copy | undefined;
  let atMostSeconds = firstForSeconds;
  const renew = async (): Promise<Copy> => {
    const { keys, cacheControl } = await fetch();
    const seconds = [...cacheControl.matchAll(/(?:max-age|stale-while-revalidate)=(\d+)/g)].map(([, value]) =>
      Number(value),
    );
    const forSeconds = seconds.reduce((sum, value) => sum + value);
    assert.ok(forSeconds === cachedForSeconds.long || forSeconds === cachedForSeconds.rotation, cacheControl);
    copy = { keys, cacheControl, until: clock.now() + Math.min(forSeconds, atMostSeconds) * second };
    atMostSeconds = cachedForSeconds.long;
    return copy;
  };
  return { get: async () => (copy === undefined || clock.now() >= copy.until ? renew() : copy), renew };
}

/** A verifier that never asks again for a kid that it does not know, and its cache behind another one. */
class Stubborn implements Verifier {
  readonly name: string;
  readonly tier: ReturnType<typeof cache>;
  readonly own: ReturnType<typeof cache>;

  /** @param firstForSeconds when the caches drop their first copies; from then on they are out of step with others */
  constructor(name: string, clock: SimulatedClock, provider: Provider, firstForSeconds?: number) {
    this.name = name;
    this.tier = cache(
      clock,
      async () => {
        const response = provider.fetch(new Request(provider.jwksUri));
        const { keys } = (await response.json()) as { keys: Copy["keys"] };
        return { keys, cacheControl: response.headers.get("cache-control") ?? "" };
      },
      firstForSeconds,
    );
    this.own = cache(clock, () => this.tier.get(), firstForSeconds && firstForSeconds / 2);
  }

  async verify({ text, kid }: Token): Promise<void> {
    const { keys } = await this.own.get();
    const jwk = keys.find((key) => key.kid === kid);
    if (jwk === undefined) throw new Error("the kid is not in the set");
    await signatureOf(text, jwk);
  }
}

/** A verifier without a cache: it looks at the set for every token. */
class Fresh extends Stubborn {
  override async verify(token: Token): Promise<void> {
    await this.tier.renew();
    await this.own.renew();
    await super.verify(token);
  }
}

const checked = new Map<string, Promise<unknown>>();

/** Many verifiers hold the same key against the same token; that takes the time of one. */
function signatureOf(text: string, jwk: jose.JWK): Promise<unknown> {
  const question = `${text} ${jwk.x}`;
  const answer = checked.get(question) ?? jose.compactVerify(text, jwk);
  checked.set(question, answer);
  return answer;
}

class Simulation {
  readonly clock: SimulatedClock;
  readonly manager: ServiceManager;
  readonly provider: Provider;
  /** Verifiers by name, and the kids of the tokens that they refused. */
  readonly refused = new Map<string, string[]>();
  readonly kids = new Set<string>();
  verified = 0;
  readonly #t: TestContext;
  readonly #stepMs: number;
  readonly #verifiers: readonly Verifier[];
  readonly #worst: Stubborn;
  #tokens: Token[] = [];
  #worstAt = Infinity;

  /** @param stepSeconds how often a token is issued, and tokens are verified */
  static async start(t: TestContext, policy: RotationPolicyOptions, stepSeconds: number): Promise<Simulation> {
    const clock = simulatedClock();
    // The clock of jose.
    t.mock.timers.enable({ apis: ["Date"], now: clock.now() });
    const manager = await createServiceManager({
      issuer,
      store: memoryStore({ clock }),
      // Short, because an hour would hide what the slack for caches is for.
      policy: { maxStaleSeconds: 300, ...policy },
      wrappingKeys: [wrappingKey],
      clock,
    });
    const provider = await createProvider({ keys: manager, clock });
    t.after(() => manager.close());
    return new Simulation(t, clock, manager, provider, stepSeconds * second);
  }

  private constructor(
    t: TestContext,
    clock: SimulatedClock,
    manager: ServiceManager,
    provider: Provider,
    stepMs: number,
  ) {
    this.#t = t;
    this.#stepMs = stepMs;
    this.clock = clock;
    this.manager = manager;
    this.provider = provider;
    const fetch = async (url: string, init: RequestInit): Promise<Response> => provider.fetch(new Request(url, init));
    const byJwt =
      (keys: jose.JWTVerifyGetKey) =>
      ({ text }: Token) =>
        jose.jwtVerify(text, keys, { issuer, audience, clockTolerance: skewSeconds });
    const ours = createRemoteKeySet({ issuer, fetch, clock });
    const theirs = jose.createRemoteJWKSet(new URL(provider.jwksUri), { [jose.customFetch]: fetch });
    this.#worst = new Stubborn("never refetches, at the worst moment", clock, provider);
    this.#verifiers = [
      { name: "createRemoteKeySet", verify: byJwt(ours) },
      { name: "createRemoteJWKSet", verify: byJwt(theirs) },
      this.#worst,
      new Fresh("without a cache", clock, provider),
      ...[1_000, 3_000, 5_000, 7_200].map((first) => new Stubborn(`never refetches ${first}`, clock, provider, first)),
    ];
  }

  /** Lets time pass, a step at a time, and stops at each step of the plan, a second before, and in the last second of a key's tokens. */
  async run(until: () => boolean): Promise<void> {
    while (!until()) {
      const { wakeAt } = advance(this.manager.records, this.manager.policy, this.clock.now());
      const now = this.clock.now();
      const last = this.#tokens.findLast(({ kid }) => kid !== activeKey(this.manager.records, "sig")?.kid);
      const lastSecond = (last?.validUntil ?? 0) - second;
      const moments = [now + this.#stepMs, wakeAt - second, wakeAt, lastSecond, this.#worstAt].filter(
        (moment) => moment > now,
      );
      await this.clock.advance(Math.min(...moments) - now);
      this.#t.mock.timers.setTime(this.clock.now());
      await this.settle();
      await this.#renewAtTheWorstMoment(wakeAt);
      await this.issue();
      await this.#verifyAll();
    }
  }

  /**
   * The manager has taken the steps that are due, and the provider has them. Where the time went on while it waited for its store, it took that
   * for silence, and tries again after some seconds.
   */
  async settle(): Promise<void> {
    for (let turns = 1; ; turns += 1) {
      const { records, policy } = this.manager;
      const { events, due } = advance(records, policy, this.clock.now());
      const { keys } = (await this.provider.fetch(new Request(this.provider.jwksUri)).json()) as {
        keys: { kid: string }[];
      };
      const expected = publishedKeys(records, "sig").map(({ kid }) => kid);
      if (events.length + due.length === 0 && keys.map(({ kid }) => kid).join() === expected.join()) return;
      await settled();
      if (turns % 100 > 0) continue;
      await this.clock.advance(second);
      this.#t.mock.timers.setTime(this.clock.now());
    }
  }

  /** A copy from just before the announcement, handed on in the last second in which it may be. */
  async #renewAtTheWorstMoment(wakeAt: number): Promise<void> {
    const now = this.clock.now();
    if (now === wakeAt - second) this.#worstAt = (await this.#worst.tier.renew()).until - second;
    if (now !== this.#worstAt) return;
    await this.#worst.own.renew();
    this.#worstAt = Infinity;
  }

  async issue(): Promise<Token> {
    const text = await this.provider.sign({ sub: "alice", aud: audience }, { typ: "at+jwt", lifetimeSeconds });
    const { kid = "" } = jose.decodeProtectedHeader(text);
    const { exp = 0 } = jose.decodeJwt(text);
    const token = { text, kid, validUntil: (exp + skewSeconds) * second };
    this.#tokens.push(token);
    this.kids.add(kid);
    return token;
  }

  /** The newest token, the oldest one that is valid, and one in between. */
  async #verifyAll(): Promise<void> {
    this.#tokens = this.#tokens.filter(({ validUntil }) => this.clock.now() < validUntil);
    const { length } = this.#tokens;
    const chosen = new Set([this.#tokens[0], this.#tokens[length >> 1], this.#tokens[length - 1]]);
    for (const token of chosen) if (token !== undefined) await this.verify(token);
  }

  async verify(token: Token): Promise<void> {
    for (const { name, verify } of this.#verifiers.map((verifier) => ({
      name: verifier.name,
      verify: verifier.verify.bind(verifier),
    }))) {
      try {
        await verify(token);
        this.verified += 1;
      } catch {
        this.refused.set(name, [...(this.refused.get(name) ?? []), token.kid]);
      }
    }
  }

  /** Lets the next key sign at once. */
  async rotateNow(): Promise<void> {
    const key = await makeLocalKey("sig", "ES256", await createWrapping([wrappingKey], issuer));
    await this.manager.execute({ type: "rotate", use: "sig", now: true, key });
    await this.settle();
  }

  refusals(): Record<string, number> {
    return Object.fromEntries([...this.refused].map(([name, kids]) => [name, kids.length]));
  }
}

const rotations = soak(40, 5);

test(`${rotations} planned rotations: not one token is refused, whoever verifies it`, async (t) => {
  const simulation = await Simulation.start(t, hasty, 1_800);
  await simulation.run(() => simulation.kids.size > rotations);
  assert.deepEqual(simulation.refusals(), {});
  assert.ok(simulation.verified > 500 * rotations, String(simulation.verified));
  const ended = simulation.manager.records.filter(({ state }) => state === "removed");
  assert.equal(ended.length, rotations - 1);
});

test("an unplanned rotation: who never refetches refuses tokens of the new key until its caches are over, and no others", async (t) => {
  const simulation = await Simulation.start(t, hasty, 300);
  const { clock } = simulation;
  const begin = clock.now();
  await simulation.run(() => clock.now() >= begin + 4_000 * second);
  await simulation.rotateNow();
  const rotatedAt = clock.now();
  const kid = activeKey(simulation.manager.records, "sig")?.kid;
  await simulation.run(() => clock.now() >= rotatedAt + 2 * cachedForSeconds.long * second);
  const refusals = simulation.refusals();
  const stubborn = Object.keys(refusals).filter((name) => name.startsWith("never refetches"));
  assert.equal(stubborn.length, 5);
  for (const name of stubborn) assert.ok((refusals[name] ?? 0) > 5, JSON.stringify(refusals));
  assert.deepEqual(new Set([...simulation.refused.values()].flat()), new Set([kid]));
  // These ask again for a kid that they do not know.
  assert.equal(refusals["createRemoteKeySet"], undefined);
  assert.equal(refusals["createRemoteJWKSet"], undefined);
  await simulation.run(() => clock.now() >= rotatedAt + 4 * cachedForSeconds.long * second);
  assert.deepEqual(simulation.refusals(), refusals);
});

test("without the slack for caches that do not tell their age, a planned rotation is refused by who is behind one", async (t) => {
  const simulation = await Simulation.start(t, { ...hasty, cacheSlackSeconds: 0, announceForSeconds: 7_805 }, 1_800);
  await simulation.run(() => simulation.kids.size > 3);
  const refusals = simulation.refusals();
  assert.ok((refusals["never refetches, at the worst moment"] ?? 0) > 0, JSON.stringify(refusals));
  assert.equal(refusals["createRemoteKeySet"], undefined);
  assert.equal(refusals["createRemoteJWKSet"], undefined);
});

test("a retiring key that is removed by force: who has looked since refuses its tokens, and no others", async (t) => {
  const simulation = await Simulation.start(t, hasty, 300);
  await simulation.run(() => simulation.kids.size > 1);
  const [kid = ""] = simulation.kids;
  assert.deepEqual(simulation.refusals(), {});
  await simulation.manager.execute({ type: "remove", kid, force: true });
  const { clock } = simulation;
  const removedAt = clock.now();
  await simulation.run(() => clock.now() > removedAt + 3_600 * second);
  const refusals = simulation.refusals();
  assert.ok((refusals["createRemoteJWKSet"] ?? 0) > 2, JSON.stringify(refusals));
  assert.ok((refusals["createRemoteKeySet"] ?? 0) > 2, JSON.stringify(refusals));
  assert.deepEqual(new Set([...simulation.refused.values()].flat()), new Set([kid]));
});
