import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Script, delayed, hanging, reply, served, unreachable } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { type Caching, defaultBounds, useOf } from "./model.ts";
import { verifierOf } from "./setup.ts";

const allKids = ["a", "b", "c", "d"];

/** How an origin answers. */
type Behaviour =
  | { readonly type: "set"; readonly kids: readonly string[]; readonly caching: Caching }
  /** Answers every request with a 304 if it may. */
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
  | { readonly type: "origin"; readonly behaviour: Behaviour };

const seconds = fc.option(fc.constantFrom(0, 1, 10, 60, 600), { nil: undefined });
const caching: fc.Arbitrary<Caching> = fc.record({
  maxAge: seconds,
  staleWhileRevalidate: seconds,
  staleIfError: seconds,
  mustRevalidate: fc.nat(3).map((value) => value === 0),
  noReuse: fc.nat(9).map((value) => value === 0),
  age: fc.constantFrom(undefined, 0, 5, 50, 500),
});

const behaviour: fc.Arbitrary<Behaviour> = fc.oneof(
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
  { weight: 3, arbitrary: behaviour.map((behaviour): Step => ({ type: "origin", behaviour })) },
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

/** What the verifier was told last, as far as it got here. */
interface SeenSet {
  readonly kids: readonly string[];
  readonly caching: Caching;
  readonly requestedAt: number;
  readonly receivedAt: number;
}

/** A cache has answered with another set, and one that left the origin before the one that was told. */
function isOutdated(next: SeenSet, told: SeenSet): boolean {
  const leftOrigin = ({ requestedAt, caching }: SeenSet): number => requestedAt - (caching.age ?? 0) * 1000;
  return next.kids.join() !== told.kids.join() && leftOrigin(next) < leftOrigin(told);
}

/** One that is older than the set that was told, and had expired, is never used. */
const hadExpired = ({ age = 0, maxAge = defaultBounds.defaultFreshSeconds, noReuse }: Caching): boolean =>
  age > Math.max(noReuse === true ? 0 : maxAge, 60);

const isFresh = (told: SeenSet, now: number): boolean =>
  useOf(told.caching, { ...told, now }, defaultBounds) === "fresh";

async function play(steps: readonly Step[]): Promise<void> {
  let told = undefined as SeenSet | undefined;
  let failedAt = -Infinity;
  /** Since when a request has no answer. */
  let hangsSince = Infinity;
  const seen = new Set<string>();
  let behaviour: Behaviour = { type: "set", kids: ["a"], caching: {} };

  const script: Script = async (request, clock) => {
    const requestedAt = clock.now();
    hangsSince = behaviour.type === "hanging" ? requestedAt : Infinity;
    const answer = ((): Script => {
      if (behaviour.type === "set") return served(behaviour.kids, headersOf(behaviour.caching));
      if (behaviour.type !== "not modified") return failures[behaviour.type];
      // It answers to what was sent, so that this is right.
      const etag = request.headers["if-none-match"];
      return etag === undefined ? reply(404) : reply(304, null, { ETag: etag, ...headersOf(behaviour.caching) });
    })();
    const said = "caching" in behaviour ? behaviour : undefined;
    const response = await delayed(20, answer)(request, clock);
    // A set without a key that can be used is a failure, and changes nothing.
    const isEmpty = said !== undefined && "kids" in said && said.kids.length === 0;
    if (said !== undefined && response.status !== 404 && !isEmpty) {
      const kids = "kids" in said ? said.kids : (told?.kids ?? []);
      // A 304 without Cache-Control leaves the stored one; here it always has one, if only an empty one.
      const next = { kids, caching: said.caching, requestedAt, receivedAt: clock.now() };
      const isBypass = request.headers["cache-control"] === "no-cache";
      // One that is outdated is asked for again, past caches; if those do not let that happen, it is kept away while the newer is fresh.
      const isKeptAway =
        told !== undefined &&
        isOutdated(next, told) &&
        (!isBypass || isFresh(told, next.receivedAt) || hadExpired(next.caching));
      if (!isKeptAway) {
        const comesBack = kids.some((kid) => seen.has(kid) && told?.kids.includes(kid) === false);
        told = {
          ...next,
          caching: { ...next.caching, mustRevalidate: comesBack || next.caching.mustRevalidate === true },
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

  /** Called at the moment when the answer is known. */
  function check(kid: string, answer: string): void {
    if (answer === kid) {
      assert.ok(told !== undefined && told.kids.includes(kid), `${kid} is not in the set`);
      const use = useOf(told.caching, { ...told, now: clock.now() }, defaultBounds);
      assert.notEqual(use, "not at all");
      const isOutage = clock.now() - failedAt <= 60_000 || clock.now() - hangsSince >= 1_000;
      if (use === "in an outage") assert.ok(isOutage, "used without an outage");
    } else if (answer === "ERR_TOKEN_KID_UNKNOWN") {
      assert.ok(told !== undefined && !told.kids.includes(kid), `${kid} is in the set`);
    } else {
      assert.match(answer, /^ERR_(FETCH_(FAILED|TIMEOUT|STATUS|REDIRECT|BODY|OUTDATED)|KEYS_RETRY_LATER)$/);
    }
  }

  const pending: Promise<unknown>[] = [];
  /** A rejection that nobody waits for yet would end the test without its counterexample. */
  const later = (promise: Promise<unknown>): void => {
    promise.catch(() => {});
    pending.push(promise);
  };
  for (const step of steps) {
    if (step.type === "advance") await clock.advance(step.ms);
    if (step.type === "origin") behaviour = step.behaviour;
    if (step.type === "refresh") later(keys.refresh().catch(() => {}));
    if (step.type === "ask") later(ask(step.kid).then((answer) => check(step.kid, answer)));
  }
  behaviour = { type: "set", kids: allKids, caching: { maxAge: 60 } };
  await clock.advance(20_000);
  // Nobody waits for ever, and when the origin works again, so do all its keys.
  await Promise.all(pending);
  const refreshed = keys.refresh();
  await clock.advance(20);
  await refreshed;
  assert.deepEqual(await Promise.all(allKids.map((kid) => ask(kid))), allKids);
}

test("whatever the origin does, a key is given only if the last set had it and its freshness allows that", async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), play), { numRuns: soak(300, 60) });
});
