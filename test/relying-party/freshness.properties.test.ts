import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type CachingHeaders, type FreshnessBounds, freshness } from "../../src/library/relying-party/freshness.ts";
import { type Caching, type Use, useOf } from "./model.ts";
import { soak } from "../support/soak.ts";

const seconds = fc.oneof(fc.nat(100), fc.nat(10_000), fc.nat(10_000_000));

/** A number, or something that is none and counts as 0. */
const value = fc.oneof(
  { weight: 4, arbitrary: seconds.map((number) => ({ text: String(number), number })) },
  { weight: 1, arbitrary: fc.constantFrom("", "x", "-1", "1.5", "1e3", "0x10").map((text) => ({ text, number: 0 })) },
);

interface Directive {
  readonly name: string;
  readonly number: number;
  readonly text: string;
}

const mixedCase = (name: string): fc.Arbitrary<string> =>
  fc.mixedCase(fc.constant(name), { toggleCase: (letter) => letter.toUpperCase() });

const numbered = (name: string): fc.Arbitrary<Directive> =>
  fc.tuple(value, fc.boolean(), mixedCase(name)).map(([{ text, number }, quoted, written]) => ({
    name,
    number,
    text: `${written}=${quoted ? `"${text}"` : text}`,
  }));

const plain = (name: string): fc.Arbitrary<Directive> => mixedCase(name).map((text) => ({ name, number: 0, text }));

/** What says nothing to a private cache that knows the four directives. */
const noise = fc
  .constantFrom("public", "private", "s-maxage=7", "x-max-age=7", 'x="max-age=7, no-store"', 'x="\\"", y', "")
  .map((text) => ({ name: "noise", number: 0, text }));

const directives = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: numbered("max-age") },
    { weight: 2, arbitrary: numbered("stale-while-revalidate") },
    { weight: 2, arbitrary: numbered("stale-if-error") },
    { weight: 3, arbitrary: noise },
    { weight: 1, arbitrary: fc.constantFrom("must-revalidate", "no-store", "no-cache").chain(plain) },
  ),
  { maxLength: 6 },
);

const requestedAt = Date.parse("2026-11-20T12:00:00Z");

interface Said {
  readonly headers: CachingHeaders;
  readonly caching: Caching;
}

const utc = (ms: number): string => new Date(ms).toUTCString();

/** Headers, and what they mean. */
const said: fc.Arbitrary<Said> = fc
  .record({
    directives: fc.option(directives),
    separator: fc.constantFrom(",", ", ", " ,\t", ",,"),
    age: fc.option(seconds),
    /** How long before the request. */
    dateAgo: fc.option(fc.oneof(fc.integer({ min: -100, max: 100 }), fc.integer({ min: -10_000, max: 100_000 }))),
    expiresIn: fc.option(fc.integer({ min: -10_000, max: 10_000_000 })),
  })
  .map(({ directives, separator, age, dateAgo, expiresIn }) => {
    const date = dateAgo === null ? undefined : requestedAt - dateAgo * 1000;
    // Of several the smallest.
    const of = (name: string): number | undefined => {
      const numbers = (directives ?? []).filter((directive) => directive.name === name).map(({ number }) => number);
      return numbers.length === 0 ? undefined : Math.min(...numbers);
    };
    return {
      headers: {
        cacheControl: directives?.map(({ text }) => text).join(separator),
        age: age?.toString(),
        date: date === undefined ? undefined : utc(date),
        expires: expiresIn === null ? undefined : utc((date ?? requestedAt) + expiresIn * 1000),
      },
      caching: {
        maxAge: of("max-age"),
        staleWhileRevalidate: of("stale-while-revalidate"),
        staleIfError: of("stale-if-error"),
        mustRevalidate: of("must-revalidate") !== undefined,
        noReuse: of("no-store") !== undefined || of("no-cache") !== undefined,
        expiresIn: expiresIn ?? undefined,
        age: age ?? undefined,
        date,
      },
    };
  });

const bounds: fc.Arbitrary<FreshnessBounds> = fc
  .record({
    minFreshSeconds: fc.nat(100),
    more: fc.nat(1_000_000),
    defaultFreshSeconds: fc.nat(1_000),
    maxStaleSeconds: fc.nat(100_000),
    outageToleranceSeconds: fc.nat(100_000),
  })
  .map(({ more, ...rest }) => Object.assign(rest, { maxFreshSeconds: rest.minFreshSeconds + more }));

test("whatever a response says, it is used as RFC 9111 and RFC 5861 allow, at any time, and no longer", () => {
  fc.assert(
    fc.property(said, bounds, fc.nat(10_000), fc.nat(10_000_000), ({ headers, caching }, bounds, delayMs, aboutMs) => {
      const result = freshness(headers, requestedAt, bounds);
      const { refreshFrom, freshUntil, staleUntil, outageUntil } = result;
      assert.ok(requestedAt <= refreshFrom && refreshFrom <= freshUntil);
      assert.ok(freshUntil <= staleUntil && staleUntil <= outageUntil);
      // Around each moment of change, and somewhere.
      const edges = [freshUntil, staleUntil, outageUntil].flatMap((edge) => [edge - 1, edge]);
      for (const now of [...edges, requestedAt + delayMs + aboutMs]) {
        const use: Use =
          now < freshUntil
            ? "fresh"
            : now < staleUntil
              ? "while revalidating"
              : now < outageUntil
                ? "in an outage"
                : "not at all";
        const moments = { requestedAt, receivedAt: requestedAt + delayMs, now };
        if (now >= moments.receivedAt)
          assert.equal(use, useOf(caching, moments, bounds), `${now - requestedAt} ms later`);
      }
    }),
    { numRuns: soak(3_000, 1_000) },
  );
});
