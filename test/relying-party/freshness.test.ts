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

/** Cache-Control, or all the fields; seconds after the request until which the response is fresh, may be used stale, and in an outage. */
type Row = readonly [source: string, name: string, input: string | CachingHeaders, expect: Expect];
type Expect = readonly [fresh: number, stale: number, outage: number];

/** Fresh for so long; nothing said about stale use. */
const fresh = (seconds: number): Expect => [seconds, seconds, seconds + 3_600];
/** Not to be reused without asking, but for the lower bound. */
const noReuse: Expect = [5, 5, 5];
/** Stale when it comes: only an outage leaves room for it. */
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

table("how Cache-Control is read", [
  ["9111 4.2.1", "no value", "max-age", stale],
  ["9111 4.2.1", "white space before the =", "max-age =60", stale],
  ["9111 4.2.1", "white space after the =", "max-age= 60", stale],
  ["9111 4.2.1", "a quote that does not end", 'max-age="60', stale],
  ["9111 4.2.1", "a semicolon for a comma", "max-age=60; public", stale],
  ["9111 1.2.2", "a number beyond all bounds", `max-age=${"9".repeat(400)}`, fresh(86_400)],
  ["9110 5.6.4", "a quoted quote", 'x="\\", max-age=1, \\"", max-age=60', fresh(60)],
  ["9111 5.2.2.4", "no-cache with a field name", 'no-cache="Set-Cookie", max-age=60', noReuse],
  ["9111 5.2.2.8", "proxy-revalidate is not for this cache", "max-age=60, proxy-revalidate", fresh(60)],
]);

table("age", [
  [
    "9111 1.2.2",
    "beyond all bounds, like max-age",
    { cacheControl: `max-age=${"9".repeat(400)}`, age: "9".repeat(400) },
    stale,
  ],
  ["9111 5.1", "of a list the first", { cacheControl: "max-age=60", age: "20, 0" }, fresh(40)],
  ["9111 5.1", "one that is invalid is ignored", { cacheControl: "max-age=60", age: "-20" }, fresh(60)],
  [
    "9111 5.1",
    "of a list that begins with an invalid one none",
    { cacheControl: "max-age=60", age: "x, 20" },
    fresh(60),
  ],
]);

const ago = (seconds: number): string => new Date(requestedAtMs - seconds * 1000).toUTCString();

table("age by Date", [
  ...["yesterday", "", "0"].map((date): Row => {
    const input = { cacheControl: "max-age=3600", date };
    return ["9110 6.6.1", `an invalid Date is none: ${date}`, input, fresh(3_600)];
  }),
  [
    "decision 15",
    "stale by Date alone: fresh for a minute, and not used longer when stale",
    { cacheControl: "max-age=3600, stale-while-revalidate=3600", date: ago(3_590) },
    [60, 3_610, 3_610],
  ],
]);

table("Expires", [
  ["9111 5.3", "0 is in the past", { expires: "0", date }, stale],
  ["9111 5.3", "-1 is in the past", { expires: "-1", date }, stale],
  ["9111 5.3", "another format is in the past", { expires: "2099-01-01T00:00:00Z", date }, stale],
  ["9111 5.3", "a year is in the past", { expires: "2099", date }, stale],
  ["9111 5.3", "two are none", { expires: `${inAnHour}, ${inAnHour}`, date }, stale],
  ["9111 4.2", "another zone is invalid", { expires: "Fri, 20 Nov 2026 13:00:00 PST", date }, stale],
  ["9111 4.2", "in any case", { expires: inAnHour.toLowerCase(), date: date.toUpperCase() }, fresh(3_600)],
  ["9110 5.6.7", "as in RFC 850", { expires: "Friday, 20-Nov-26 13:00:00 GMT", date }, fresh(3_600)],
  ["9110 5.6.7", "as asctime has it, in GMT", { expires: "Fri Nov 20 13:00:00 2026", date }, fresh(3_600)],
  ["9110 6.6.1", "an invalid Date: that of the request", { expires: inAnHour, date: "yesterday" }, fresh(3_600)],
]);
