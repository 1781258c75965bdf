import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { InvalidArgumentError } from "commander";
import fc from "fast-check";
import { addClaim } from "../../src/cli/claim.ts";
import { meantKid } from "../../src/cli/keys/kid.ts";
import { record, start, tombstone } from "../rotation/key-records.ts";

describe("a claim of the command line", () => {
  const rows: [text: string, value: unknown][] = [
    ["5", 5],
    ["-0.50", -0.5],
    ["0", 0],
    ["0.000", 0],
    ["1e3", 1000],
    ["1.5E+2", 150],
    ["100000000000000000000", 1e20],
    ["1e21", 1e21],
    ["9007199254740991", 2 ** 53 - 1],
    ["0.1", 0.1],
    ["0.0000001", 1e-7],
    ["5e-324", 5e-324],
    ['"12345678901234567890"', "12345678901234567890"],
    ['{"__proto__":1}', JSON.parse('{"__proto__":1}')],
    ["[1,null,true]", [1, null, true]],
    ["read write", "read write"],
    ["12 apples", "12 apples"],
    ["a=b", "a=b"],
    ["", ""],
  ];
  for (const [text, value] of rows)
    test(`${text} is taken as it is`, () => assert.deepEqual(addClaim(`n=${text}`, { a: 1 }), { a: 1, n: value }));

  const changed = ["9007199254740993", "1e999", "-1e999", "1e-999", "0.12345678901234567890", '{"a":[1,{"b":1e400}]}'];
  for (const text of changed)
    test(`${text} would not stay what it is`, () => {
      assert.throws(() => addClaim(`n=${text}`), InvalidArgumentError);
    });

  test("__proto__ is a name like any other", () => {
    assert.deepEqual(Object.entries(addClaim("__proto__=1")), [["__proto__", 1]]);
  });

  test("property: every number that JSON writes is taken", () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        assert.deepEqual(addClaim(`n=${JSON.stringify(value)}`), { n: JSON.parse(JSON.stringify(value)) });
      }),
    );
  });
});

describe("a kid is given whole, or by a prefix that only it has", () => {
  const kids = ["abcdef", "abcdefgh", "abcxyz123", "xy", "2026-11-22", "-abcde7", "é漢字1234"];
  const records = kids.map((kid) => record(kid, "retiring", { announcedAt: start, retiredAt: start }));
  const rows: readonly { readonly given: string; readonly kid?: string; readonly says?: readonly string[] }[] = [
    ...kids.map((kid) => ({ given: kid, kid })),
    { given: "abcxyz", kid: "abcxyz123" },
    { given: "abcdefg", kid: "abcdefgh" },
    { given: "-abcde", kid: "-abcde7" },
    { given: "2026-1", kid: "2026-11-22" },
    { given: "abcxy", says: ["a prefix has 6 characters or more", ...kids.slice(0, 6)] },
    { given: "", says: ["a prefix has 6"] },
    { given: "abcdefX", says: ["and none begins so", "- abcdefgh, sig retiring"] },
    { given: "bcdefgh", says: ["and none begins so"] },
  ];
  for (const { given, kid, says = [] } of rows) {
    test(`${given}: ${kid ?? "refused"}`, () => {
      if (kid !== undefined) return assert.equal(meantKid(records, given), kid);
      assert.throws(
        () => meantKid(records, given),
        ({ code, message }: { code: string; message: string }) => {
          assert.equal(code, "ERR_KID_UNMANAGED");
          assert.deepEqual(
            says.filter((part) => !message.includes(part)),
            [],
          );
          return true;
        },
      );
    });
  }

  test("a prefix that several have is refused, with those alone", () => {
    const many = ["abcdefg1", "abcdefg2", "other"].map((kid) => tombstone(kid, "removed"));
    assert.throws(() => meantKid(many, "abcdefg"), {
      code: "ERR_OPTION_INVALID",
      message: '2 kids begin with "abcdefg"; give more of one:\n- abcdefg1, sig removed\n- abcdefg2, sig removed',
    });
  });
});
