import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { meantKid } from "../../src/cli/kid.ts";
import { record, start, tombstone } from "../rotation/key-records.ts";

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
