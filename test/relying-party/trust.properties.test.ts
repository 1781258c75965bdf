import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Script, delayed, hanging, reply, served, unreachable } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { type Caching, defaultBounds, useOf } from "./model.ts";
import { verifierOf } from "./setup.ts";

const allKids = ["a", "b", "c", "d"];

/** The behavior of an origin. */
type Behavior =
  | { readonly type: "set"; readonly kids: readonly string[]; readonly caching: Caching }
  /** Responds with 304 if the request is conditional. */
  | { readonly type: "not modified"; readonly caching: Caching }
  | { readonly type: keyof typeof failures };

const failures = {
  unreachable,
  hanging,
  unwell: reply(503),
  missing: reply(404),
  moved: reply(302, null, { Location: "https://evil.example/" }),
  garbage: reply(200, "<html>"),
};

type Step =
  | { readonly type: "advance"; readonly ms: number }
  | { readonly type: "ask"; readonly kid: string }
  | { readonly type: "refresh" }
  | { readonly type: "origin"; readonly behavior: Behavior };

const seconds = fc.option(fc.constantFrom(0, 1, 10, 60, 600), { nil: undefined });
const caching: fc.Arbitrary<Caching> = fc.record({
  maxAge: seconds,
  staleWhileRevalidate: seconds,
  staleIfError: seconds,
  mustRevalidate: fc.nat(3).map((value) => value === 0),
  noReuse: fc.nat(9).map((value) => value === 0),
  age: fc.constantFrom(undefined, 0, 5, 50, 500),
});

const behavior: fc.Arbitrary<Behavior> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ type: fc.constant("set"), kids: fc.subarray(allKids), caching }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("not modified"), caching }) },
  {
    weight: 3,
    arbitrary: fc.record({ type: fc.constantFrom(...(Object.keys(failures) as (keyof typeof failures)[])) }),
  },
);

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom(10, 999, 5_000, 9_000, 60_000, 601_000).map((ms): Step => ({ type: "advance", ms })),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      type: fc.constant<"ask">("ask"),
      kid: fc.constantFrom(...allKids),
    }),
  },
  { weight: 1, arbitrary: fc.constant<Step>({ type: "refresh" }) },
  { weight: 3, arbitrary: behavior.map((behavior): Step => ({ type: "origin", behavior })) },
);

function headersOf({ maxAge, staleWhileRevalidate, staleIfError, mustRevalidate, noReuse, age }: Caching) {
  const directives = [
    maxAge !== undefined && `max-age=${maxAge}`,
    staleWhileRevalidate !== undefined && `stale-while-revalidate=${staleWhileRevalidate}`,
    staleIfError !== undefined && `stale-if-error=${staleIfError}`,
    mustRevalidate && "must-revalidate",
    noReuse && "no-cache",
  ].filter((directive) => directive !== false && directive !== undefined);
  return { "Cache-Control": directives.join(", "), ...(age !== undefined && { Age: String(age) }) };
}

/** A set that the verifier has received. */
interface ReceivedSet {
  readonly kids: readonly string[];
  readonly caching: Caching;
  readonly requestedAt: number;
  readonly receivedAt: number;
}

/** Reports whether a cache has returned another set that left the origin before the latest one. */
function isOutdated(next: ReceivedSet, latest: ReceivedSet): boolean {
  const leftOrigin = ({ requestedAt, caching }: ReceivedSet): number => requestedAt - (caching.age ?? 0) * 1000;
  return next.kids.join() !== latest.kids.join() && leftOrigin(next) < leftOrigin(latest);
}

/** Reports whether a set had expired. An expired set that is older than the latest one is never used. */
const hadExpired = ({ age = 0, maxAge = defaultBounds.defaultFreshSeconds, noReuse }: Caching): boolean =>
  age > Math.max(noReuse === true ? 0 : maxAge, 60);

const isFresh = (set: ReceivedSet, now: number): boolean =>
  useOf(set.caching, { ...set, now }, defaultBounds) === "fresh";

async function play(steps: readonly Step[]): Promise<void> {
  let latest = undefined as ReceivedSet | undefined;
  let failedAt = -Infinity;
  /** Time of a pending request. */
  let hangsSince = Infinity;
  const seen = new Set<string>();
  let behavior: Behavior = { type: "set", kids: ["a"], caching: {} };

  const script: Script = async (request, clock) => {
    const requestedAt = clock.now();
    hangsSince = behavior.type === "hanging" ? requestedAt : Infinity;
    const answer = ((): Script => {
      if (behavior.type === "set") return served(behavior.kids, headersOf(behavior.caching));
      if (behavior.type !== "not modified") return failures[behavior.type];
      // A 304 is right only for a conditional request.
      const etag = request.headers["if-none-match"];
      return etag === undefined ? reply(404) : reply(304, null, { ETag: etag, ...headersOf(behavior.caching) });
    })();
    const returned = "caching" in behavior ? behavior : undefined;
    const response = await delayed(20, answer)(request, clock);
    // A set without a usable key is a failure and changes nothing.
    const isEmpty = returned !== undefined && "kids" in returned && returned.kids.length === 0;
    if (returned !== undefined && response.status !== 404 && !isEmpty) {
      const kids = "kids" in returned ? returned.kids : (latest?.kids ?? []);
      // A 304 without Cache-Control keeps the stored one; here it always has one, which may be empty.
      const next = { kids, caching: returned.caching, requestedAt, receivedAt: clock.now() };
      const isBypass = request.headers["cache-control"] === "no-cache";
      // An outdated set is refetched with a bypass of caches. If they ignore that, it is not used while the newer set is fresh.
      const isKeptAway =
        latest !== undefined &&
        isOutdated(next, latest) &&
        (!isBypass || isFresh(latest, next.receivedAt) || hadExpired(next.caching));
      if (!isKeptAway) {
        const returns = kids.some((kid) => seen.has(kid) && latest?.kids.includes(kid) === false);
        latest = {
          ...next,
          caching: { ...next.caching, mustRevalidate: returns || next.caching.mustRevalidate === true },
        };
        for (const kid of kids) seen.add(kid);
      }
    }
    return response;
  };

  const verifier = verifierOf(script, {
    onEvent({ type }) {
      if (type === "failed") failedAt = verifier.clock.now();
      if (type === "refreshed") failedAt = -Infinity;
    },
  });
  const { clock, ask, keys } = verifier;

  /** Checks a result at the time of its arrival. */
  function check(kid: string, answer: string): void {
    if (answer === kid) {
      assert.ok(latest !== undefined && latest.kids.includes(kid), `${kid} is not in the set`);
      const use = useOf(latest.caching, { ...latest, now: clock.now() }, defaultBounds);
      assert.notEqual(use, "not at all");
      const isOutage = clock.now() - failedAt <= 60_000 || clock.now() - hangsSince >= 1_000;
      if (use === "in an outage") assert.ok(isOutage, "used without an outage");
    } else if (answer === "ERR_TOKEN_KID_UNKNOWN") {
      assert.ok(latest !== undefined && !latest.kids.includes(kid), `${kid} is in the set`);
    } else {
      assert.match(answer, /^ERR_(FETCH_(FAILED|TIMEOUT|STATUS|REDIRECT|BODY|OUTDATED)|KEYS_RETRY_LATER)$/);
    }
  }

  const pending: Promise<unknown>[] = [];
  /** Keeps a promise for later. An unhandled rejection would end the test without its counterexample. */
  const later = (promise: Promise<unknown>): void => {
    promise.catch(() => {});
    pending.push(promise);
  };
  for (const step of steps) {
    if (step.type === "advance") await clock.advance(step.ms);
    if (step.type === "origin") behavior = step.behavior;
    if (step.type === "refresh") later(keys.refresh().catch(() => {}));
    if (step.type === "ask") later(ask(step.kid).then((answer) => check(step.kid, answer)));
  }
  behavior = { type: "set", kids: allKids, caching: { maxAge: 60 } };
  await clock.advance(20_000);
  // No call waits permanently, and once the origin works again, so do all of its keys.
  await Promise.all(pending);
  const refreshed = keys.refresh();
  await clock.advance(20);
  await refreshed;
  assert.deepEqual(await Promise.all(allKids.map((kid) => ask(kid))), allKids);
}

test("returns a key only if the latest set has it and may still be used, whatever the origin does", async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), play), { numRuns: soak(300, 60) });
});
