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
const anHourAgo = "Fri, 20 Nov 2026 11:00:00 GMT";

interface Row {
  readonly source: string;
  readonly name: string;
  /** Cache-Control, or all the fields. */
  readonly input: string | CachingHeaders;
  /** Seconds after the request until which the response is fresh, may be used stale, and may be used in an outage. */
  readonly expect: readonly [fresh: number, stale: number, outage: number];
  readonly bounds?: Partial<FreshnessBounds>;
}

/** Fresh for so long; nothing said about stale use. */
const fresh = (seconds: number): Row["expect"] => [seconds, seconds, seconds + 3_600];
/** Not to be reused without asking, but for the lower bound. */
const noReuse: Row["expect"] = [5, 5, 5];
/** Stale when it comes: only an outage leaves room for it. */
const stale: Row["expect"] = [5, 5, 3_600];

const table = (title: string, rows: readonly Row[]): void => {
  describe(title, () => {
    for (const { source, name, input, expect, bounds: changed } of rows) {
      test(`${source}: ${name}`, () => {
        const headers = typeof input === "string" ? { cacheControl: input } : input;
        const result = freshness(headers, requestedAtMs, { ...bounds, ...changed });
        const seconds = [result.freshUntil, result.staleUntil, result.outageUntil].map(
          (moment) => (moment - requestedAtMs) / 1000,
        );
        assert.deepEqual(seconds, expect);
      });
    }
  });
};

table("how Cache-Control is read", [
  { source: "9111 5.2.2.1", name: "max-age", input: "max-age=60", expect: fresh(60) },
  { source: "9111 5.2", name: "names in any case", input: "PUBLIC, Max-Age=60", expect: fresh(60) },
  { source: "9111 5.2", name: "a quoted number is a number", input: 'max-age="60"', expect: fresh(60) },
  { source: "9110 5.6.1", name: "empty list members", input: ", ,max-age=60,,", expect: fresh(60) },
  { source: "9110 5.6.3", name: "white space around members", input: "public\t, \t max-age=60 ", expect: fresh(60) },
  { source: "9110 5.6.3", name: "no white space at all", input: "public,max-age=60,private", expect: fresh(60) },
  { source: "9111 4.2.1", name: "of two values the smaller", input: "max-age=600, max-age=60", expect: fresh(60) },
  { source: "9111 4.2.1", name: "in either order", input: "max-age=60, max-age=600", expect: fresh(60) },
  { source: "9111 4.2.1", name: "a second that is invalid", input: "max-age=60, max-age=x", expect: stale },
  { source: "9111 4.2.1", name: "no value", input: "max-age", expect: stale },
  { source: "9111 4.2.1", name: "an empty value", input: "max-age=", expect: stale },
  { source: "9111 4.2.1", name: "a negative value", input: "max-age=-60", expect: stale },
  { source: "9111 4.2.1", name: "a fraction", input: "max-age=60.5", expect: stale },
  { source: "9111 4.2.1", name: "not only digits", input: "max-age=60s", expect: stale },
  { source: "9111 4.2.1", name: "hexadecimal", input: "max-age=0x60", expect: stale },
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
  { source: "9111 5.2.3", name: "unknown directives", input: 'max-age=60, x, y=1, z="1"', expect: fresh(60) },
  {
    source: "9111 5.2.3",
    name: "one in quotes is none",
    input: 'x="max-age=1, no-store", max-age=60',
    expect: fresh(60),
  },
  { source: "9110 5.6.4", name: "a quoted quote", input: 'x="\\", max-age=1, \\"", max-age=60', expect: fresh(60) },
  { source: "9111 5.2.3", name: "a name within a name", input: "x-max-age=1, max-age=60", expect: fresh(60) },
  {
    source: "9111 5.2.2.10",
    name: "s-maxage is not for this cache",
    input: "s-maxage=1, max-age=60",
    expect: fresh(60),
  },
  { source: "9111 5.2.2.10", name: "s-maxage alone says nothing", input: "s-maxage=60", expect: fresh(300) },
  { source: "9111 5.2.2.5", name: "no-store", input: "no-store, max-age=60", expect: noReuse },
  { source: "9111 5.2.2.4", name: "no-cache", input: "max-age=60, No-Cache", expect: noReuse },
  {
    source: "9111 5.2.2.4",
    name: "no-cache with a field name",
    input: 'no-cache="Set-Cookie", max-age=60',
    expect: noReuse,
  },
  {
    source: "9111 5.2.2.4",
    name: "no-cache and stale use",
    input: "no-cache, stale-if-error=60, stale-while-revalidate=60",
    expect: noReuse,
  },
  {
    source: "9111 5.2.2.5",
    name: "no-store and Expires",
    input: { cacheControl: "no-store", expires: inAnHour, date },
    expect: noReuse,
  },
  {
    source: "9111 5.2.2.2",
    name: "must-revalidate forbids stale use",
    input: "max-age=60, must-revalidate",
    expect: [60, 60, 60],
  },
  {
    source: "9111 5.2.2.2",
    name: "must-revalidate wins",
    input: "stale-if-error=60, stale-while-revalidate=60, max-age=60, Must-Revalidate",
    expect: [60, 60, 60],
  },
  {
    source: "9111 5.2.2.8",
    name: "proxy-revalidate is not for this cache",
    input: "max-age=60, proxy-revalidate",
    expect: fresh(60),
  },
  {
    source: "5861 3",
    name: "stale-while-revalidate",
    input: "max-age=60, stale-while-revalidate=30",
    expect: [60, 90, 3_660],
  },
  { source: "5861 3", name: "one that is invalid", input: "max-age=60, stale-while-revalidate", expect: fresh(60) },
  {
    source: "5861 3",
    name: "one above the cap",
    input: "max-age=60, stale-while-revalidate=9000",
    expect: [60, 7_260, 7_260],
  },
  { source: "5861 4", name: "stale-if-error", input: "max-age=60, stale-if-error=30", expect: [60, 60, 90] },
  { source: "5861 4", name: "stale-if-error=0", input: "max-age=60, stale-if-error=0", expect: [60, 60, 60] },
  { source: "5861 4", name: "one that is invalid", input: "max-age=60, stale-if-error=x", expect: [60, 60, 60] },
  { source: "5861 4", name: "one above the cap", input: "max-age=60, stale-if-error=9000", expect: fresh(60) },
  {
    source: "5861 4",
    name: "one shorter than stale-while-revalidate",
    input: "max-age=60, stale-while-revalidate=30, stale-if-error=10",
    expect: [60, 90, 90],
  },
  {
    source: "contract 3",
    name: "long mode",
    input: "public, max-age=3600, stale-while-revalidate=3600",
    expect: [3_600, 7_200, 7_200],
  },
  {
    source: "contract 3",
    name: "rotation mode",
    input: "public, max-age=300, must-revalidate",
    expect: [300, 300, 300],
  },
]);

table("age", [
  { source: "9111 4.2.3", name: "taken off", input: { cacheControl: "max-age=60", age: "20" }, expect: fresh(40) },
  {
    source: "9111 4.2.3",
    name: "taken off the stale use as well",
    input: { cacheControl: "max-age=60, stale-while-revalidate=30, stale-if-error=40", age: "20" },
    expect: [40, 70, 80],
  },
  {
    source: "9111 4.2.4",
    name: "more than max-age",
    input: { cacheControl: "max-age=60, stale-while-revalidate=30", age: "70" },
    expect: [5, 20, 3_590],
  },
  {
    source: "9111 4.2.4",
    name: "more than all",
    input: { cacheControl: "max-age=60, stale-while-revalidate=30", age: "9000" },
    expect: noReuse,
  },
  { source: "9111 4.2.3", name: "taken off the default", input: { age: "100" }, expect: fresh(200) },
  {
    source: "9111 4.2.3",
    name: "taken off Expires",
    input: { expires: inAnHour, date, age: "600" },
    expect: fresh(3_000),
  },
  {
    source: "9111 4.2.3",
    name: "taken off before the upper bound",
    input: { cacheControl: "max-age=90000", age: "1000" },
    expect: fresh(86_400),
  },
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
  {
    source: "9111 4.2.3",
    name: "a Date counts without an Age",
    input: { cacheControl: "max-age=3600", date: ago(3_000) },
    expect: fresh(600),
  },
  {
    source: "9111 4.2.3",
    name: "of Date and Age the older one counts: Date",
    input: { cacheControl: "max-age=3600, stale-while-revalidate=3600", date: ago(3_000), age: "5" },
    expect: [600, 4_200, 4_200],
  },
  {
    source: "9111 4.2.3",
    name: "of Date and Age the older one counts: Age",
    input: { cacheControl: "max-age=3600", date: ago(5), age: "3000" },
    expect: fresh(600),
  },
  {
    source: "9111 4.2.3",
    name: "a Date to come is no age",
    input: { cacheControl: "max-age=3600", date: ago(-3_000) },
    expect: fresh(3_600),
  },
  {
    source: "9111 4.2.3",
    name: "in rotation mode",
    input: { cacheControl: "public, max-age=300, must-revalidate", date: ago(200) },
    expect: [100, 100, 100],
  },
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
  {
    source: "decision 15",
    name: "a clock that is wrong by a year",
    input: { cacheControl: "max-age=3600, stale-while-revalidate=3600", date: ago(31_536_000) },
    expect: [60, 60, 60],
  },
  {
    source: "decision 15",
    name: "that minute is not longer than Age allows",
    input: { cacheControl: "max-age=300, must-revalidate", age: "260", date: ago(3_600) },
    expect: [40, 40, 40],
  },
  {
    source: "decision 15",
    name: "nor than the upper bound",
    input: { cacheControl: "max-age=300, must-revalidate", date: ago(3_600) },
    bounds: { maxFreshSeconds: 20 },
    expect: [20, 20, 20],
  },
  {
    source: "decision 15",
    name: "and not there for what may not be reused",
    input: { cacheControl: "no-cache", date: ago(3_600) },
    expect: noReuse,
  },
]);

table("Expires", [
  { source: "9111 5.3", name: "less Date", input: { expires: inAnHour, date }, expect: fresh(3_600) },
  {
    source: "9111 5.3",
    name: "counted by the clock of the server",
    input: { expires: inAnHour, date: anHourAgo },
    expect: fresh(3_600),
  },
  {
    source: "9111 5.3",
    name: "max-age wins",
    input: { cacheControl: "max-age=60", expires: inAnHour, date },
    expect: fresh(60),
  },
  {
    source: "9111 4.2.1",
    name: "max-age that is invalid wins too",
    input: { cacheControl: "max-age=x", expires: inAnHour, date },
    expect: stale,
  },
  {
    source: "9111 5.3",
    name: "Cache-Control without max-age does not",
    input: { cacheControl: "public", expires: inAnHour, date },
    expect: fresh(3_600),
  },
  { source: "9111 5.3", name: "in the past", input: { expires: anHourAgo, date }, expect: stale },
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
  { source: "9110 6.6.1", name: "no Date: that of the request", input: { expires: inAnHour }, expect: fresh(3_600) },
  {
    source: "9110 6.6.1",
    name: "an invalid Date: that of the request",
    input: { expires: inAnHour, date: "yesterday" },
    expect: fresh(3_600),
  },
]);

table("bounds", [
  { source: "option", name: "a server that says nothing", input: {}, expect: fresh(300) },
  { source: "option", name: "an empty Cache-Control", input: "", expect: fresh(300) },
  {
    source: "option",
    name: "less than the lower bound",
    input: "max-age=1, stale-while-revalidate=2",
    expect: [5, 5, 3_601],
  },
  { source: "option", name: "no lower bound", input: "no-store", bounds: { minFreshSeconds: 0 }, expect: [0, 0, 0] },
  {
    source: "option",
    name: "more than the upper bound",
    input: "max-age=604800, stale-while-revalidate=60",
    expect: [86_400, 86_460, 90_000],
  },
  {
    source: "option",
    name: "a lower upper bound",
    input: "max-age=604800",
    bounds: { maxFreshSeconds: 100 },
    expect: fresh(100),
  },
  {
    source: "option",
    name: "the upper bound caps the default",
    input: {},
    bounds: { maxFreshSeconds: 100 },
    expect: fresh(100),
  },
  {
    source: "option",
    name: "no use in an outage",
    input: "max-age=60, stale-if-error=600",
    bounds: { outageToleranceSeconds: 0 },
    expect: [60, 60, 60],
  },
]);
