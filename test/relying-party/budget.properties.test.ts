import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { KeySetEvent } from "../../src/verify/relying-party/index.ts";
import { type Script, delayed, hanging, reply, served, unreachable } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { warmVerifier } from "./setup.ts";

// The documented budgets: three requests immediately, then one after 1, 2, 4, 8, 10, 10 … seconds; after failures, one immediately.
// They are full again after a minute without a request or a failure.
const pauseMs = (index: number): number => [1_000, 2_000, 4_000, 8_000][index] ?? 10_000;

const quietMs = 60_000;

/**
 * Returns how many requests unknown kids may cause within a time, as long as the keys do not change: at most 3 within a second, 11 within a
 * minute, and 6 a minute in the long run. A quiet minute does not allow more: the burst after it
 * is smaller than the six requests that it costs.
 */
function allowed(windowMs: number): number {
  let pauses = 0;
  for (let spentMs = pauseMs(0); spentMs <= windowMs; spentMs += pauseMs(pauses)) pauses += 1;
  return 3 + pauses;
}

type Step =
  | { readonly type: "advance"; readonly ms: number }
  /** Tokens with made-up kids. */
  | { readonly type: "flood"; readonly count: number }
  /** A token signed with a published key; 0 is the latest one. */
  | { readonly type: "valid"; readonly index: number }
  | { readonly type: "rotate" }
  /** The origin's behavior from then on. */
  | { readonly type: "origin"; readonly behavior: "works" | keyof typeof broken };

interface Schedule {
  readonly steps: readonly Step[];
  readonly cacheControl: string;
  readonly latencyMs: number;
}

const broken = { unreachable, hanging, missing: reply(404), unwell: reply(503), garbage: reply(200, "{}") };

interface Played {
  readonly timeline: { readonly type: KeySetEvent["type"] | "revalidation" | "bypass"; readonly atMs: number }[];
  /** Results of the valid tokens. */
  readonly answers: readonly { readonly kid: string; readonly answer: string }[];
}

async function play({ steps, cacheControl, latencyMs }: Schedule): Promise<Played> {
  const timeline: Played["timeline"] = [];
  const kids = ["key 0"];
  const now: Script = (...args) => served(kids, { "Cache-Control": cacheControl })(...args);
  const { ask, clock, origin } = await warmVerifier(now, {
    onEvent: ({ type }) => timeline.push({ type, atMs: clock?.now() }),
  });
  timeline.length = 0;
  let behave = now;
  origin.script = (request, clock) => {
    const type = request.headers["cache-control"] === "no-cache" ? "bypass" : "revalidation";
    timeline.push({ type, atMs: request.atMs });
    return delayed(latencyMs, behave)(request, clock);
  };
  const answers: Promise<{ kid: string; answer: string }>[] = [];
  const floods: Promise<string>[] = [];
  const askValid = async (kid: string): Promise<{ kid: string; answer: string }> => ({
    kid,
    answer: await ask(kid),
  });
  for (const step of steps) {
    if (step.type === "advance") await clock.advance(step.ms);
    if (step.type === "rotate") kids.unshift(`key ${kids.length}`);
    if (step.type === "origin") behave = step.behavior === "works" ? now : broken[step.behavior];
    if (step.type === "valid") answers.push(askValid(kids[step.index % kids.length] as string));
    for (let i = 0; step.type === "flood" && i < step.count; i += 1) {
      floods.push(ask(`made up ${floods.length}`));
    }
  }
  // After the origin has worked for a while, no earlier failure has an effect.
  behave = now;
  await clock.advance(30_000);
  answers.push(askValid(kids[0] as string));
  await clock.advance(30_000);
  await Promise.all(floods);
  return { timeline, answers: await Promise.all(answers) };
}

/** Asserts that no window of time without a change of keys has more requests than allowed. */
function checkWindows(timeline: Played["timeline"], revalidationsPerSecond: number): void {
  for (const [start, { atMs: startMs }] of timeline.entries()) {
    let bypasses = 0;
    let revalidations = 0;
    for (const { type, atMs } of timeline.slice(start)) {
      if (type === "changed") break;
      const windowMs = atMs - startMs;
      if (type === "bypass") bypasses += 1;
      if (type === "revalidation") revalidations += 1;
      assert.ok(bypasses <= allowed(windowMs), `${bypasses} for unknown kids in ${windowMs} ms`);
      const most = 1 + Math.floor((windowMs / 1000) * revalidationsPerSecond);
      assert.ok(revalidations <= most, `${revalidations} revalidations in ${windowMs} ms`);
    }
  }
}

/** Asserts the pauses after failures. */
function checkPauses(timeline: Played["timeline"]): void {
  let failures = 0;
  let failedAtMs = 0;
  for (const { type, atMs } of timeline) {
    if (type === "refreshed") failures = 0;
    if (type === "failed") {
      failures = atMs - failedAtMs >= quietMs ? 1 : failures + 1;
      failedAtMs = atMs;
    } else if (failures > 0 && (type === "bypass" || type === "revalidation")) {
      assert.ok(atMs - failedAtMs >= pauseMs(failures - 1), `${atMs - failedAtMs} ms after failure ${failures}`);
    }
  }
}

const advance = fc
  .oneof(fc.nat(300), fc.nat(3_000), fc.nat(30_000), fc.nat(90_000))
  .map((ms): Step => ({ type: "advance", ms }));
const flood: fc.Arbitrary<Step> = fc.record({ type: fc.constant("flood"), count: fc.constantFrom(1, 2, 50) });
const valid: fc.Arbitrary<Step> = fc.record({ type: fc.constant("valid"), index: fc.nat(3) });
const rotate = fc.constant<Step>({ type: "rotate" });
const origin = fc
  .constantFrom("works", ...(Object.keys(broken) as (keyof typeof broken)[]))
  .map((behavior): Step => ({ type: "origin", behavior }));

const schedule = (latency: fc.Arbitrary<number>, ...steps: fc.Arbitrary<Step>[]): fc.Arbitrary<Schedule> =>
  fc.record({
    steps: fc.array(fc.oneof(...steps), { maxLength: 40 }),
    cacheControl: fc.constantFrom(
      "max-age=3600",
      "max-age=20, stale-while-revalidate=20",
      "max-age=20, must-revalidate",
      "no-store",
    ),
    latencyMs: latency,
  });

test("a flood at any pace causes no more requests than the budget allows and hides a new key for at most ten seconds", async () => {
  await fc.assert(
    fc.asyncProperty(schedule(fc.nat(800), advance, advance, flood, valid, rotate), async (schedule) => {
      const { timeline, answers } = await play(schedule);
      const found = new Set<string>();
      for (const { kid, answer } of answers) {
        if (answer === kid) found.add(kid);
        else assert.ok(!found.has(kid) && answer === "ERR_TOKEN_KID_UNKNOWN", `${kid}: ${answer}`);
      }
      assert.ok(found.has(answers.at(-1)?.kid ?? ""));
      // A set that must not be reused counts as fresh for 5 s and is refreshed 1 s ahead.
      checkWindows(timeline, 1 / 4);
    }),
    { numRuns: soak(150, 30) },
  );
});

test("however the origin fails, a valid token signed with a new key is rejected only for a while", async () => {
  await fc.assert(
    fc.asyncProperty(schedule(fc.nat(6_000), advance, advance, flood, valid, rotate, origin), async (schedule) => {
      const { timeline, answers } = await play(schedule);
      for (const { kid, answer } of answers)
        if (answer !== kid) assert.match(answer, /^ERR_(FETCH_\w+|KEYS_RETRY_LATER|TOKEN_KID_UNKNOWN)$/);
      checkWindows(timeline, 1);
      checkPauses(timeline);
    }),
    { numRuns: soak(150, 30) },
  );
});
