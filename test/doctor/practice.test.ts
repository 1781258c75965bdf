import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Exchange, Look, Observations } from "../../src/doctor/index.ts";
import { practice } from "../../src/doctor/practice.ts";
import { at, bytes, observed, published, response } from "./observed.ts";

const hour = 3_600_000;
const setOf = (kids: readonly string[], control?: string): Exchange =>
  response(
    bytes({ keys: kids.map((kid) => published(kid)) }),
    control === undefined ? {} : { "cache-control": control },
  );
const look = (hours: number, ...kids: readonly string[]): Look => ({ at: at + hours * hour, set: setOf(kids) });
const oneLook = (kids: readonly string[], control?: string): Observations => ({ at, set: setOf(kids, control) });

const rows: readonly (readonly [about: string, observations: Observations, says: RegExp])[] = [
  ["one key", oneLook(["a"]), /^One signing key is published, so no next key is announced\./m],
  ["two keys", oneLook(["a", "b"]), /^2 signing keys are published: one signs/m],
  ["a lifetime of weeks", oneLook(["a"], "max-age=1209600, immutable"), /^Caches may keep the set for 14 days /m],
  ["a lifetime of hours", oneLook(["a"]), /^Caches may keep the set for 2 hours /m],
  ["no-store", oneLook(["a"], "no-store"), /^Caches may not keep the set/m],
  ["no lifetime", oneLook(["a"], "public"), /^No lifetime is stated/m],
  [
    "servers that disagree, of which nothing else is known",
    {
      ...observed({ probes: { again: setOf(["elsewhere"]) } }),
      tokens: [{ at, kid: "elsewhere", expiresAt: at + hour }],
    },
    /^5 answers of one look had 2 different sets of keys: servers disagree\.\nCaches may .*\.$/,
  ],
  ["servers that agree", observed(), /^5 answers of one look had the same keys\./m],
  [
    "a watch",
    { ...oneLook(["a"]), looks: [look(1, "a", "b"), look(6, "b")] },
    /^In 6 hours, one key came and one key went\./m,
  ],
  [
    "a key that is announced, and one that outlives its tokens",
    {
      ...oneLook(["a"]),
      looks: [look(1, "a", "b"), look(9, "b")],
      tokens: [
        { at: at + 2 * hour, kid: "a", issuedAt: at + 2 * hour, expiresAt: at + 3 * hour },
        { at: at + 5 * hour, kid: "b", issuedAt: at + 4 * hour, expiresAt: at + 5 * hour },
      ],
    },
    /^kid "a" was withdrawn after its tokens had expired\.\nkid "b" began to sign 3 hours after it was published\.$/m,
  ],
  [
    "a key that is withdrawn early, and one that signs early",
    {
      ...oneLook(["a"]),
      looks: [look(1, "a", "b"), look(2, "b")],
      tokens: [
        { at, kid: "a", issuedAt: at, expiresAt: at + 4 * hour },
        { at, kid: "b", issuedAt: at, expiresAt: at + 4 * hour },
      ],
    },
    /^kid "a" was withdrawn while a token was valid for 2 hours more\.\nkid "b" began to sign before it was published\.$/m,
  ],
  [
    "a key that is not published",
    { ...oneLook(["a"]), tokens: [{ at, kid: "z" }] },
    /^kid "z" signs and is not published/m,
  ],
];

describe("how keys are rotated", () => {
  for (const [about, observations, says] of rows) {
    test(about, async () => assert.match((await practice(observations)).join("\n"), says));
  }

  test("nothing is said of a file, or where no set came", async () => {
    assert.deepEqual(await practice({ at, set: { body: bytes({ keys: [published("a")] }) } }), []);
    assert.deepEqual(await practice({ at, set: { url: "https://a.example", status: 500, headers: [] } }), []);
  });
});
