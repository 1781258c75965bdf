import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { planSvg } from "../../src/cli/managed-keys/plan-svg.ts";
import { planPicture } from "../../src/cli/managed-keys/plan-terminal.ts";
import { terminalOf } from "../../src/cli/terminal.ts";
import { planRotation } from "../../src/rotation/explain/plan.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { day, hour, record, start, tombstone } from "../rules/key-records.ts";

const policy = rotationPolicy();
const minute = 60_000;
const kid = "9Lk2bM3Zq_x1h8V0TtqVJQp5bG4Yw1nH6oRkZ2sXc7E";
const otherKid = "Xw1nH6oRkZ2sXc7E9Lk2bM3Zq_x1h8V0TtqVJQp5bG4";
const active = record(kid, "active", { announcedAt: start - 40 * day, activatedAt: start - 39 * day });
const announced = record(otherKid, "announced", { announcedAt: start - 5 * hour });
const retiring = record("2026-08", "retiring", {
  announcedAt: start - 140 * day,
  activatedAt: start - 139 * day,
  retiredAt: start - 20 * minute,
});
const encryption = record("enc-1", "active", {
  use: "enc",
  announcedAt: start - 60 * day,
  activatedAt: start - 60 * day,
});
const revoked = tombstone("leaked", "revoked", { endedAt: start - hour, trustedUntil: start + 2 * hour });

const rolledBack = [
  record("2026-08", "active", { announcedAt: start - 140 * day, activatedAt: start - 139 * day, activations: 2 }),
  record(kid, "retiring", {
    announcedAt: start - 25 * hour,
    activatedAt: start - hour,
    retiredAt: start - 20 * minute,
  }),
  record("enc-1", "announced", { use: "enc", announcedAt: start - 2 * hour }),
];

const quiet = planRotation([active], policy, start);
const replacement = record(kid, "active", { announcedAt: start - 25 * hour, activatedAt: start - 20 * minute });
const busy = planRotation([retiring, replacement, announced, encryption, revoked], policy, start);

// A person checked each of these pictures before it was recorded here.
const pictures = {
  quiet: `
                                          now              1          2      3
sig 9Lk2bM3Zq_…RkZ2sXc7E █████████████████│███████████████████████████▒▒▒▒▒▒▒
sig (next)                                │                ╍╍╍╍╍╍╍╍╍╍╍█████████▶
rotation mode                             │                ▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀
                         ┼───── 39 d ─────┼───── 50 d ─────┼── 1 d ───┼─2 h──┼──
                         10-12          11-20            01-09      01-10  14:10

╍ announced: published only
█ active
▒ retiring
▀ rotation mode: cached for 5 min
(next) is a key that does not exist yet. Not to scale, but the axis shows the
durations. All times are UTC.

1  2027-01-09 12:00:00 UTC, in 50 d
   announce sig (next)
     it starts signing at 2027-01-10 12:00:00 UTC, and every cache must have it
     by then [rotateEveryDays 90 after 2026-10-12 12:00:00 UTC, when the active
     key became active, minus announceForSeconds 86400]
2  2027-01-10 12:00:00 UTC, in 51 d
   retire sig 9Lk2bM3Zq_x1h8V0TtqVJQp5bG4Yw1nH6oRkZ2sXc7E
     the next key replaces it [the time at which the next key becomes active]
   activate sig (next)
     every process has been publishing it for 1 d, so every cache has it
     [announceForSeconds 86400, at least 18300 = maxStaleSeconds 3600 + 7200 s
     in caches + cacheSlackSeconds 7200 + clockSkewSeconds 300]
3  2027-01-10 14:10:00 UTC, in 51 d 2 h
   remove sig 9Lk2bM3Zq_x1h8V0TtqVJQp5bG4Yw1nH6oRkZ2sXc7E
     the last token that it signed has expired for every verifier [7800 s after
     the next key replaced it = maxStaleSeconds 3600 + maxTokenLifetimeSeconds
     3600 + 2 * clockSkewSeconds 300]
`,
  busy: `
                                           now 1         2   3       4    5    6       7     8   9
sig 2026-08                    ◀████████▒▒▒│▒▒▒
sig 9Lk2bM3Zq_x1h…H6oRkZ2sXc7E ◀╍╍╍╍╍╍╍╍███│█████████████▒▒▒▒
sig Xw1nH6oRkZ2sX…0TtqVJQp5bG4 ╍╍╍╍╍╍╍╍╍╍╍╍│╍╍╍╍╍╍╍╍╍╍╍╍╍████████████████████████████████████▒▒▒▒
sig leaked                          xxxxxxx│xxxxxxxx
sig (next)                                 │                                           ╍╍╍╍╍╍██████▶
enc enc-1                      ◀███████████│██████████████████████████████▒▒▒▒▒
enc (next)                                 │                         ╍╍╍╍╍█████████████████████████▶
rotation mode                  ▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀        ▀▀▀▀▀▀▀▀▀▀        ▀▀▀▀▀▀▀▀▀▀
                               ┼4 h─┼───┼──┼1 h┼2 h─┼15 h┼2 h┼─28 d──┼1 d─┼6 h─┼─59 d──┼ 1 d ┼2 h┼──
                               11-20     12:00         11-21       12-19     18:10   02-18 02-19
`,
  narrow: `
                  now  2 3 4 5 6  7  9
sig 2026-08   <##=|=
sig 9Lk2~Xc7E <..#|####==
sig Xw1n~5bG4 ....|....############==
sig leaked      xx|xx
sig (next)        |               .####>
enc enc-1     <###|##########==
enc (next)        |        ..##########>
rotation mode ~~~~~~~~~~~  ~~~~   ~~~
              +-+++-++-+-+-+-+-+--++-+--
              11-20  11-21 12-20 02-19

. announced: published only
# active
= retiring
x revoked, but may still be cached
~ rotation mode: cached for 5 min
(next) is a key that does not exist yet.
`,
  back: `
                                   now 2    3   4  5     6   7    8  9   10  11
sig 2026-08              ◀███▒▒▒███│████████████▒▒▒
sig 9Lk2bM3Zq_…RkZ2sXc7E ◀╍╍╍███▒▒▒│▒▒▒
sig (next 1)                       │╍╍╍╍╍╍╍╍╍╍╍╍█████████████████████▒▒▒▒
sig (next 2)                       │                         ╍╍╍╍╍╍╍╍██████████▶
enc enc-1                ╍╍╍╍╍╍╍╍╍╍│╍╍╍╍╍╍╍╍██████████████████████▒▒▒▒▒▒▒▒▒▒▒
enc (next)                         │                     ╍╍╍╍╍╍╍╍╍█████████████▶
rotation mode            ▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀      ▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀
                         ┼1 h┼──┼──┼1 h┼20 h┼2 h┼──┼88 d─┼2 h┼22 h┼──┼2 h┼2 h┼──
                         11-20   12:00    11-21  14:10 02-18    02-19  14:10
`,
  first: `
              now                   2            3       4
sig (next 1)  │██████████████████████████████████▒▒▒▒▒▒▒▒
sig (next 2)  │                     ╍╍╍╍╍╍╍╍╍╍╍╍╍██████████▶
rotation mode │                     ▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀
              ┼─────── 89 d ────────┼─── 1 d ────┼──2 h──┼──
              11-20               02-17        02-18   14:10
`,
};

/** Returns the picture without the legend and the steps. */
const timeline = (picture: string): string => picture.split("\n\n", 1)[0] ?? "";
/** A terminal without colors. */
const plain = { color: false, ascii: false };
const framed = (picture: string): string => `\n${picture}\n`;

describe("the plan in a terminal", () => {
  test("shows one key in 80 columns, with its steps", () => {
    assert.equal(framed(planPicture(quiet, { ...plain, columns: 80 })), pictures.quiet);
  });

  test("shows keys in every state, for both uses, in 100 columns", () => {
    assert.equal(framed(timeline(planPicture(busy, { ...plain, columns: 100 }))), pictures.busy);
  });

  test("fits in 40 columns of ASCII", () => {
    const lines = planPicture(busy, { ...plain, columns: 40, ascii: true }).split("\n");
    assert.equal(framed(lines.slice(0, 18).join("\n")), pictures.narrow);
  });

  test("shows one active key at a time after a rollback", () => {
    const ahead = planRotation(rolledBack, policy, start);
    assert.equal(framed(timeline(planPicture(ahead, { ...plain, columns: 80 }))), pictures.back);
  });

  test("shows the first keys of an empty store", () => {
    assert.equal(
      framed(timeline(planPicture(planRotation([], policy, start), { ...plain, columns: 60 }))),
      pictures.first,
    );
  });

  test("has no line wider than the terminal, unless a kid is wider", () => {
    for (let columns = 40; columns <= 200; columns += 1) {
      for (const ascii of [true, false]) {
        const wide = planPicture(busy, { ...plain, columns, ascii })
          .split("\n")
          .filter((line) => line.length > columns && !line.includes(kid) && !line.includes(otherKid));
        assert.deepEqual(wide, [], `${columns} columns`);
      }
    }
  });

  test("shows day-long and hour-long periods alongside 90-day ones, however long the plan is", () => {
    const [, first = ""] = timeline(planPicture(quiet, { ...plain, columns: 80 })).split("\n");
    assert.ok(/▒{3,}/.test(first));
    const far = timeline(
      planPicture(planRotation([active], policy, start, start + 700 * day), { ...plain, columns: 80 }),
    ).split("\n");
    for (const line of far.filter((line) => line.includes("(next"))) assert.match(line, /╍/);
  });

  test("adds colors to the same picture, using escape sequences", () => {
    const colored = planPicture(busy, { ...plain, columns: 80, color: true });
    assert.ok(colored.includes("\u001b[32m█\u001b[39m"));
    // oxlint-disable-next-line no-control-regex
    assert.equal(colored.replaceAll(/\u001b\[\d+m/g, ""), planPicture(busy, { ...plain, columns: 80 }));
  });

  test("prints no control characters from a kid", () => {
    const nasty = record("\u001b[31m\u202e", "active", { announcedAt: start, activatedAt: start });
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(planPicture(planRotation([nasty], policy, start), { ...plain, columns: 80 }), /[\u001b\u202e]/);
  });
});

describe("the capabilities of an output", () => {
  const terminal = { isTTY: true, columns: 120 };
  type Row = readonly [
    name: string,
    [output: object, environment: Record<string, string>],
    ReturnType<typeof terminalOf>,
  ];
  const rows: readonly Row[] = [
    ["a terminal", [terminal, { LANG: "en_US.UTF-8" }], { columns: 120, color: true, ascii: false }],
    ["NO_COLOR", [terminal, { NO_COLOR: "1" }], { columns: 120, color: false, ascii: false }],
    ["an empty NO_COLOR is ignored", [terminal, { NO_COLOR: "" }], { columns: 120, color: true, ascii: false }],
    ["a dumb terminal", [terminal, { TERM: "dumb" }], { columns: 120, color: false, ascii: false }],
    ["the C locale", [terminal, { LC_ALL: "C", LANG: "en_US.UTF-8" }], { columns: 120, color: true, ascii: true }],
    ["a pipe", [{}, {}], { columns: 80, color: false, ascii: false }],
    ["a pipe with COLUMNS", [{}, { COLUMNS: "132" }], { columns: 132, color: false, ascii: false }],
    ["COLUMNS that is not a number", [{}, { COLUMNS: "wide" }], { columns: 80, color: false, ascii: false }],
  ];
  for (const [name, [output, environment], expected] of rows) {
    const stdout = { ...output, write() {} };
    test(name, () => assert.deepEqual(terminalOf({ stdout, environment }), expected));
  }
});

describe("the plan as SVG", () => {
  const nasty = record('<&"]]>\u0000ü', "active", { announcedAt: start, activatedAt: start });
  const long = record("k".repeat(300), "active", { announcedAt: start, activatedAt: start });
  const plans = {
    quiet,
    busy,
    first: planRotation([], policy, start),
    back: planRotation(rolledBack, policy, start),
    far: planRotation([active, encryption], policy, start, start + 700 * day),
    nasty: planRotation([nasty], policy, start),
    long: planRotation([long], policy, start),
  };

  for (const [name, ahead] of Object.entries(plans)) {
    test(`${name}: is well-formed, without scripts or external content`, () => {
      const svg = planSvg(ahead, 'Keys of "https://op.example/?a&b"');
      assertWellFormed(svg);
      assert.doesNotMatch(svg, /<script|<foreignObject|<image|href|@import|\bon\w+=|data:/i);
      const urls = svg.match(/url\([^)]*\)|https?:[^<"\s]*/g) ?? [];
      const known = new Set(["url(#stripes)", "url(#crosses)", "http://www.w3.org/2000/svg"]);
      assert.deepEqual(
        urls.filter((url) => !known.has(url) && !url.startsWith("https://op.example/")),
        [],
      );
    });
  }

  test("names every key, and draws every state", () => {
    const svg = planSvg(busy, "Keys");
    for (const one of [kid, otherKid, "2026-08", "enc-1", "leaked", "(next)"]) assert.ok(svg.includes(one), one);
    for (const state of ["announced", "active", "retiring", "revoked", "mode"]) {
      assert.match(svg, new RegExp(`<rect class="${state}" x="[\\d.]+" y="[\\d.]+" width="[\\d.]+"`), state);
    }
    assert.match(svg, />now</);
    const dates = [...svg.matchAll(/>(\d{4}-\d\d-\d\d)</g)].map(([, date]) => date);
    assert.deepEqual(dates, [...new Set(dates)], "the time of day replaces a repeated date");
    assert.deepEqual(dates[0], "2026-11-20");
    assert.match(svg, />12:00</);
  });

  test("draws everything inside the image and makes every bar wide enough to see", () => {
    for (const ahead of Object.values(plans)) {
      const svg = planSvg(ahead, "Keys");
      const [, imageWidth = "0", height = "0"] = /^<svg [^>]*width="(\d+)" height="(\d+)"/.exec(svg) ?? [];
      for (const [, x = "", y = "", width = ""] of svg.matchAll(
        /<rect class="\w+" x="(.*?)" y="(.*?)" width="(.*?)"/g,
      )) {
        assert.ok(Number(width) >= 20, width);
        assert.ok(Number(x) >= 0 && Number(x) + Number(width) <= Number(imageWidth), `${x} ${width} ${imageWidth}`);
        assert.ok(Number(y) <= Number(height));
      }
    }
  });

  test("draws dates on the axis without overlap", () => {
    for (const ahead of Object.values(plans)) {
      const places = [
        ...planSvg(ahead, "Keys").matchAll(/<text x="([\d.]+)"[^>]*>(?:\d{4}-\d\d-\d\d|\d\d:\d\d)</g),
      ].map(([, x]) => Number(x));
      places.slice(1).forEach((x, index) => assert.ok(x - (places[index] ?? 0) >= 76, `${places[index]} ${x}`));
    }
  });
});

/** Asserts that tags are closed in order, attributes are quoted, and XML 1.0 allows every character. */
function assertWellFormed(xml: string): void {
  // oxlint-disable-next-line no-control-regex
  assert.doesNotMatch(xml, /[\u0000-\u0008\u000b\u000c\u000e-\u001f]|&(?!(amp|lt|gt|quot);)/);
  const open: string[] = [];
  const tags = xml.matchAll(/<(\/?)([a-z]+)((?: [\w:-]+="[^"<]*")*)(\/?)>/gi);
  let end = 0;
  for (const { index, 0: tag, 1: closing, 2: name = "", 4: empty } of tags) {
    assert.doesNotMatch(xml.slice(end, index), /</, "an unescaped <");
    end = index + tag.length;
    if (closing === "/") assert.equal(open.pop(), name);
    else if (empty !== "/") open.push(name);
  }
  assert.deepEqual(open, []);
  assert.equal(xml.slice(end), "\n");
}
