import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type CachingHeaders, type FreshnessBounds, freshness } from "../../src/verify/http-cache/freshness.ts";
import { createUnknownKids } from "../../src/verify/relying-party/unknown-kids.ts";
import { soak } from "../support/soak.ts";
import { type Caching, type Use, useOf } from "./model.ts";

// The local time zone must not matter.
process.env["TZ"] = "Asia/Kolkata";

const bounds: FreshnessBounds = {
  minFreshSeconds: 5,
  maxFreshSeconds: 86_400,
  defaultFreshSeconds: 300,
  maxStaleSeconds: 7_200,
  outageToleranceSeconds: 3_600,
};
const requestedAtMs = Date.parse("2026-11-20T12:00:00Z");
const date = "Fri, 20 Nov 2026 12:00:00 GMT";
const inAnHour = "Fri, 20 Nov 2026 13:00:00 GMT";

/** Cache-Control or all header fields, and the seconds after the request until which the response is fresh, usable while stale, and usable in an outage. */
type Row = readonly [source: string, name: string, input: string | CachingHeaders, expect: Expect];
type Expect = readonly [fresh: number, stale: number, outage: number];

/** Returns the expectation for a response that is fresh for this long, without directives about stale use. */
const fresh = (seconds: number): Expect => [seconds, seconds, seconds + 3_600];
/** A response that must be revalidated, except within the lower bound. */
const noReuse: Expect = [5, 5, 5];
/** A response that arrives stale and is usable only in an outage. */
const stale: Expect = [5, 5, 3_600];

const table = (title: string, rows: readonly Row[]): void => {
  describe(title, () => {
    for (const [source, name, input, expect] of rows) {
      test(`${source}: ${name}`, () => {
        const headers = typeof input === "string" ? { cacheControl: input } : input;
        const result = freshness(headers, requestedAtMs, bounds);
        const seconds = [result.freshUntil, result.staleUntil, result.outageUntil].map(
          (moment) => (moment - requestedAtMs) / 1000,
        );
        assert.deepEqual(seconds, expect);
      });
    }
  });
};

table("Cache-Control", [
  ["RFC 9111 section 4.2.1", "a directive without a value", "max-age", stale],
  ["RFC 9111 section 4.2.1", "white space before the =", "max-age =60", stale],
  ["RFC 9111 section 4.2.1", "white space after the =", "max-age= 60", stale],
  ["RFC 9111 section 4.2.1", "an unterminated quoted string", 'max-age="60', stale],
  ["RFC 9111 section 4.2.1", "a semicolon instead of a comma", "max-age=60; public", stale],
  [
    "RFC 9111 section 4.2.1",
    "the first of two directives counts, if it is shorter",
    "max-age=60, max-age=600",
    fresh(60),
  ],
  [
    "RFC 9111 section 4.2.1",
    "the first of two directives counts, if it is longer",
    'Max-Age="600", max-age=60',
    fresh(600),
  ],
  ["RFC 9111 section 1.2.2", "a huge number counts as the maximum", `max-age=${"9".repeat(400)}`, fresh(86_400)],
  ["RFC 9110 section 5.6.4", "an escaped quote in a quoted string", 'x="\\", max-age=1, \\"", max-age=60', fresh(60)],
  ["RFC 9111 section 5.2.2.4", "no-cache with a field name", 'no-cache="Set-Cookie", max-age=60', noReuse],
  [
    "RFC 9111 section 5.2.2.8",
    "proxy-revalidate does not apply to this cache",
    "max-age=60, proxy-revalidate",
    fresh(60),
  ],
]);

table("Age", [
  [
    "RFC 9111 section 1.2.2",
    "a huge number counts, as in max-age",
    { cacheControl: `max-age=${"9".repeat(400)}`, age: "9".repeat(400) },
    stale,
  ],
  ["RFC 9111 section 5.1", "the first value of a list counts", { cacheControl: "max-age=60", age: "20, 0" }, fresh(40)],
  ["RFC 9111 section 5.1", "an invalid value is ignored", { cacheControl: "max-age=60", age: "-20" }, fresh(60)],
  [
    "RFC 9111 section 5.1",
    "a list that begins with an invalid value is ignored",
    { cacheControl: "max-age=60", age: "x, 20" },
    fresh(60),
  ],
]);

const ago = (seconds: number): string => new Date(requestedAtMs - seconds * 1000).toUTCString();

table("age computed from Date", [
  ...["yesterday", "", "0"].map((date): Row => {
    const input = { cacheControl: "max-age=3600", date };
    return ["RFC 9110 section 6.6.1", `an invalid Date is ignored: ${date}`, input, fresh(3_600)];
  }),
  [
    "decision 15",
    "stale only by Date: fresh for a minute, and not used longer when stale",
    { cacheControl: "max-age=3600, stale-while-revalidate=3600", date: ago(3_590) },
    [60, 3_610, 3_610],
  ],
]);

table("Expires", [
  ["RFC 9111 section 5.3", "0 counts as the past", { expires: "0", date }, stale],
  ["RFC 9111 section 5.3", "-1 counts as the past", { expires: "-1", date }, stale],
  ["RFC 9111 section 5.3", "another format counts as the past", { expires: "2099-01-01T00:00:00Z", date }, stale],
  ["RFC 9111 section 5.3", "a bare year counts as the past", { expires: "2099", date }, stale],
  ["RFC 9111 section 5.3", "two values are invalid", { expires: `${inAnHour}, ${inAnHour}`, date }, stale],
  ["RFC 9111 section 4.2", "another time zone is invalid", { expires: "Fri, 20 Nov 2026 13:00:00 PST", date }, stale],
  [
    "RFC 9111 section 4.2",
    "is case-insensitive",
    { expires: inAnHour.toLowerCase(), date: date.toUpperCase() },
    fresh(3_600),
  ],
  [
    "RFC 9110 section 5.6.7",
    "may have the RFC 850 format",
    { expires: "Friday, 20-Nov-26 13:00:00 GMT", date },
    fresh(3_600),
  ],
  [
    "RFC 9110 section 5.6.7",
    "may have the asctime format, which is in GMT",
    { expires: "Fri Nov 20 13:00:00 2026", date },
    fresh(3_600),
  ],
  [
    "RFC 9110 section 6.6.1",
    "starts at the time of the request if Date is invalid",
    { expires: inAnHour, date: "yesterday" },
    fresh(3_600),
  ],
]);

const seconds = fc.oneof(fc.nat(100), fc.nat(10_000), fc.nat(10_000_000));

/** A number, or an invalid value that counts as 0. */
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

/** Directives that do not matter to a private cache. */
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

interface CachedResponse {
  readonly headers: CachingHeaders;
  readonly caching: Caching;
}

const utc = (ms: number): string => new Date(ms).toUTCString();

/** Headers and their meaning. */
const responses: fc.Arbitrary<CachedResponse> = fc
  .record({
    directives: fc.option(directives),
    separator: fc.constantFrom(",", ", ", " ,\t", ",,"),
    age: fc.option(seconds),
    /** Seconds before the request. */
    dateAgo: fc.option(fc.oneof(fc.integer({ min: -100, max: 100 }), fc.integer({ min: -10_000, max: 100_000 }))),
    expiresIn: fc.option(fc.integer({ min: -10_000, max: 10_000_000 })),
  })
  .map(({ directives, separator, age, dateAgo, expiresIn }) => {
    const date = dateAgo === null ? undefined : requestedAt - dateAgo * 1000;
    // The first of several.
    const of = (name: string): number | undefined => {
      const numbers = (directives ?? []).filter((directive) => directive.name === name).map(({ number }) => number);
      return numbers[0];
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

const anyBounds: fc.Arbitrary<FreshnessBounds> = fc
  .record({
    minFreshSeconds: fc.nat(100),
    more: fc.nat(1_000_000),
    defaultFreshSeconds: fc.nat(1_000),
    maxStaleSeconds: fc.nat(100_000),
    outageToleranceSeconds: fc.nat(100_000),
  })
  .map(({ more, ...rest }) => Object.assign(rest, { maxFreshSeconds: rest.minFreshSeconds + more }));

test("uses a response for exactly as long as RFC 9111 and RFC 5861 allow, whatever its headers", () => {
  fc.assert(
    fc.property(
      responses,
      anyBounds,
      fc.nat(10_000),
      fc.nat(10_000_000),
      ({ headers, caching }, bounds, delayMs, aboutMs) => {
        const result = freshness(headers, requestedAt, bounds);
        const { refreshFrom, freshUntil, staleUntil, outageUntil } = result;
        assert.ok(requestedAt <= refreshFrom && refreshFrom <= freshUntil);
        assert.ok(freshUntil <= staleUntil && staleUntil <= outageUntil);
        // Around each change, and at a random time.
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
      },
    ),
    { numRuns: soak(3_000, 1_000) },
  );
});

describe("an unknown kid's record", () => {
  test("belongs to one set and is cleared only with that set", async () => {
    const ofSet = createUnknownKids();
    const [one, two] = [ofSet(), ofSet()];
    await one.add("k", 0);
    assert.deepEqual([await one.has("k", 0), await two.has("k", 0)], [true, false]);
    await two.add("k", 0);
    one.clear();
    assert.deepEqual([await one.has("k", 0), await two.has("k", 0)], [false, true]);
  });

  test("lasts ten seconds, and does not apply to times before the kid was recorded", async () => {
    const unknown = createUnknownKids()();
    for (const [at, expect] of [
      [1_000, true],
      [10_999, true],
      [11_000, false],
      [999, false],
    ] as const) {
      await unknown.add("k", 1_000);
      assert.equal(await unknown.has("k", at), expect, String(at));
    }
  });

  test("does not match a kid that equals the recorded kid's hash, such as a thumbprint (RFC 7638)", async () => {
    const unknown = createUnknownKids()();
    const long = JSON.stringify({ crv: "P-256", kty: "EC", x: "x".repeat(43), y: "y".repeat(43) });
    const thumbprint = createHash("sha256").update(long).digest("base64url");
    await unknown.add(long, 0);
    assert.deepEqual([await unknown.has(long, 0), await unknown.has(thumbprint, 0)], [true, false]);
    for (const kid of [`#${thumbprint}`, `1 ${thumbprint}`]) assert.equal(await unknown.has(kid, 0), false);
  });
});
