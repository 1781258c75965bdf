import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type CachingHeaders, type FreshnessBounds, freshness } from "../../src/library/relying-party/freshness.ts";

// Neither side's local time may matter.
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

interface Row {
  readonly source: string;
  readonly name: string;
  /** Cache-Control, or all the fields. */
  readonly input: string | CachingHeaders;
  /** Seconds after the request until which the response is fresh, may be used stale, and may be used in an outage. */
  readonly expect: readonly [fresh: number, stale: number, outage: number];
}

/** Fresh for so long; nothing said about stale use. */
const fresh = (seconds: number): Row["expect"] => [seconds, seconds, seconds + 3_600];
/** Not to be reused without asking, but for the lower bound. */
const noReuse: Row["expect"] = [5, 5, 5];
/** Stale when it comes: only an outage leaves room for it. */
const stale: Row["expect"] = [5, 5, 3_600];

const table = (title: string, rows: readonly Row[]): void => {
  describe(title, () => {
    for (const { source, name, input, expect } of rows) {
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

table("how Cache-Control is read", [
  { source: "9111 4.2.1", name: "no value", input: "max-age", expect: stale },
  { source: "9111 4.2.1", name: "white space before the =", input: "max-age =60", expect: stale },
  { source: "9111 4.2.1", name: "white space after the =", input: "max-age= 60", expect: stale },
  { source: "9111 4.2.1", name: "a quote that does not end", input: 'max-age="60', expect: stale },
  { source: "9111 4.2.1", name: "a semicolon for a comma", input: "max-age=60; public", expect: stale },
  {
    source: "9111 1.2.2",
    name: "a number beyond all bounds",
    input: `max-age=${"9".repeat(400)}`,
    expect: fresh(86_400),
  },
  { source: "9110 5.6.4", name: "a quoted quote", input: 'x="\\", max-age=1, \\"", max-age=60', expect: fresh(60) },
  {
    source: "9111 5.2.2.4",
    name: "no-cache with a field name",
    input: 'no-cache="Set-Cookie", max-age=60',
    expect: noReuse,
  },
  {
    source: "9111 5.2.2.8",
    name: "proxy-revalidate is not for this cache",
    input: "max-age=60, proxy-revalidate",
    expect: fresh(60),
  },
]);

table("age", [
  {
    source: "9111 1.2.2",
    name: "beyond all bounds, like max-age",
    input: { cacheControl: `max-age=${"9".repeat(400)}`, age: "9".repeat(400) },
    expect: stale,
  },
  {
    source: "9111 5.1",
    name: "of a list the first",
    input: { cacheControl: "max-age=60", age: "20, 0" },
    expect: fresh(40),
  },
  {
    source: "9111 5.1",
    name: "one that is invalid is ignored",
    input: { cacheControl: "max-age=60", age: "-20" },
    expect: fresh(60),
  },
  {
    source: "9111 5.1",
    name: "of a list that begins with an invalid one none",
    input: { cacheControl: "max-age=60", age: "x, 20" },
    expect: fresh(60),
  },
]);

const ago = (seconds: number): string => new Date(requestedAtMs - seconds * 1000).toUTCString();

table("age by Date", [
  ...["yesterday", "", "0"].map((date): Row => {
    const input = { cacheControl: "max-age=3600", date };
    return { source: "9110 6.6.1", name: `an invalid Date is none: ${date}`, input, expect: fresh(3_600) };
  }),
  {
    source: "decision 15",
    name: "stale by Date alone: fresh for a minute, and not used longer when stale",
    input: { cacheControl: "max-age=3600, stale-while-revalidate=3600", date: ago(3_590) },
    expect: [60, 3_610, 3_610],
  },
]);

table("Expires", [
  { source: "9111 5.3", name: "0 is in the past", input: { expires: "0", date }, expect: stale },
  { source: "9111 5.3", name: "-1 is in the past", input: { expires: "-1", date }, expect: stale },
  {
    source: "9111 5.3",
    name: "another format is in the past",
    input: { expires: "2099-01-01T00:00:00Z", date },
    expect: stale,
  },
  { source: "9111 5.3", name: "a year is in the past", input: { expires: "2099", date }, expect: stale },
  { source: "9111 5.3", name: "two are none", input: { expires: `${inAnHour}, ${inAnHour}`, date }, expect: stale },
  {
    source: "9111 4.2",
    name: "another zone is invalid",
    input: { expires: "Fri, 20 Nov 2026 13:00:00 PST", date },
    expect: stale,
  },
  {
    source: "9111 4.2",
    name: "in any case",
    input: { expires: inAnHour.toLowerCase(), date: date.toUpperCase() },
    expect: fresh(3_600),
  },
  {
    source: "9110 5.6.7",
    name: "as in RFC 850",
    input: { expires: "Friday, 20-Nov-26 13:00:00 GMT", date },
    expect: fresh(3_600),
  },
  {
    source: "9110 5.6.7",
    name: "as asctime has it, in GMT",
    input: { expires: "Fri Nov 20 13:00:00 2026", date },
    expect: fresh(3_600),
  },
  {
    source: "9110 6.6.1",
    name: "an invalid Date: that of the request",
    input: { expires: inAnHour, date: "yesterday" },
    expect: fresh(3_600),
  },
]);
