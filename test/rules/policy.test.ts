import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import {
  type RotationPolicyOptions,
  announceForMs,
  leastAnnouncementSeconds,
  retireForMs,
  rotateEveryMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import { refusal } from "../support/refusal.ts";

const defaults = {
  rotateEveryDays: 90,
  announceForSeconds: 86_400,
  maxTokenLifetimeSeconds: 3600,
  clockSkewSeconds: 300,
  cacheSlackSeconds: 7200,
  maxStaleSeconds: 3600,
};

test("a policy has these defaults, and an option that is undefined has its default", () => {
  assert.deepEqual(rotationPolicy(), defaults);
  assert.deepEqual(rotationPolicy({ clockSkewSeconds: undefined }), defaults);
  assert.deepEqual(rotationPolicy({ clockSkewSeconds: 60 }), { ...defaults, clockSkewSeconds: 60 });
});

test("a policy does not change with its options, nor by itself", () => {
  const options = { clockSkewSeconds: 60 };
  const policy = rotationPolicy(options);
  options.clockSkewSeconds = 61;
  assert.equal(policy.clockSkewSeconds, 60);
  assert.ok(Object.isFrozen(policy));
});

const numberIn = (message: string, form: RegExp): number | undefined => {
  const [, digits] = form.exec(message) ?? [];
  return digits === undefined ? undefined : Number(digits);
};

describe("every duration is a finite number that is not negative", () => {
  for (const name of Object.keys(defaults)) {
    for (const value of [Number.NaN, -1, -0.001, Infinity, "90", {}, true]) {
      test(`${name}: ${inspect(value)}`, async () => {
        const error = await refusal(() => rotationPolicy({ [name]: value }), "ERR_OPTION_INVALID");
        assert.match(error.message, new RegExp(name));
      });
    }
  }
});

test("an unknown duration is refused, with the names that there are", async () => {
  const error = await refusal(() => rotationPolicy({ unheardOf: 90 } as RotationPolicyOptions), "ERR_OPTION_UNKNOWN");
  assert.match(error.message, /"unheardOf"/);
  for (const name of Object.keys(defaults)) assert.match(error.message, new RegExp(name));
});

// 7,200 s in caches (RFC 5861 section 3), and what comes on top.
const announcement = {
  maxStaleSeconds: 600,
  cacheSlackSeconds: 1000,
  clockSkewSeconds: 200,
  announceForSeconds: 9000,
};
// Announcement 9,000 s; the old encryption key leaves after 600 + 3,600 + 2 * 200 + 7,200 + 1,000 s.
const rotation = { ...announcement, rotateEveryDays: 21_800 / 86_400 };

/** At each bound, and just beyond it. */
const bounds: readonly (readonly [
  rule: string,
  at: RotationPolicyOptions,
  beyond: RotationPolicyOptions,
  says: readonly RegExp[],
  code?: "ERR_OPTION_INVALID",
])[] = [
  [
    "an announcement outlasts every cache",
    announcement,
    { announceForSeconds: 8999 },
    [/announceForSeconds is 8999/, /at least 9000/, /maxStaleSeconds \(600\)/, /7200 s/, /\(1000\)/, /\(200\)/],
  ],
  ["an announcement outlasts every cache: slack", announcement, { cacheSlackSeconds: 1001 }, [/at least 9001/]],
  ["an announcement outlasts every cache: skew", announcement, { clockSkewSeconds: 201 }, [/at least 9001/]],
  [
    "an announcement outlasts every process that cannot read",
    announcement,
    { maxStaleSeconds: 601 },
    [/at least 9001/, /maxStaleSeconds \(601\)/],
  ],
  [
    "the others being as by default",
    { announceForSeconds: 18_300 },
    { announceForSeconds: 18_299.999 },
    [/least 18300/],
  ],
  [
    "a rotation is over before the next one begins",
    rotation,
    { rotateEveryDays: 21_799 / 86_400 },
    [/rotateEveryDays is 0.252/, /at least 0.26 \(/, /announceForSeconds \(9000\)/, /12800 s/],
  ],
  ["a rotation is over: lifetime of tokens", rotation, { maxTokenLifetimeSeconds: 3601 }, [/rotateEveryDays/]],
  ["a rotation is over: announcement", rotation, { announceForSeconds: 9001 }, [/rotateEveryDays/, /\(9001\)/]],
  ["every date of a plan is one", { rotateEveryDays: 36_500 }, { rotateEveryDays: 36_500.1 }, [/at most 36500/]],
  [
    "slack may be nothing",
    { clockSkewSeconds: 1, cacheSlackSeconds: 0, announceForSeconds: 10_801 },
    { announceForSeconds: 10_800 },
    [/at least 10801/],
  ],
  // A skew of less would refuse every signature, because a store takes time to answer.
  ...["maxTokenLifetimeSeconds", "maxStaleSeconds", "clockSkewSeconds"].map(
    (name) =>
      [`${name}: a second at least`, { [name]: 1 }, { [name]: 0.9 }, [new RegExp(name)], "ERR_OPTION_INVALID"] as const,
  ),
];

describe("a policy keeps the arithmetic of caches and tokens", () => {
  for (const [rule, at, beyond, says, code = "ERR_POLICY_INVALID"] of bounds) {
    test(rule, async () => {
      assert.deepEqual(rotationPolicy(at), { ...defaults, ...at });
      const { message } = await refusal(() => rotationPolicy({ ...at, ...beyond }), code);
      for (const part of says) assert.match(message, part);
    });
  }
});

test("what follows from a policy, in milliseconds", () => {
  const policy = rotationPolicy({ ...announcement, rotateEveryDays: 2, maxTokenLifetimeSeconds: 5000 });
  assert.equal(rotateEveryMs(policy), 172_800_000);
  assert.equal(announceForMs(policy), 9_000_000);
  assert.equal(leastAnnouncementSeconds(policy), 9000);
  // For 600 s a process that has not read signs with the old key. Its token lives for 5,000 s, and twice the skew covers the clocks that begin
  // and end the wait, and those that make and judge the token.
  assert.equal(retireForMs(policy, "sig"), 6_000_000);
  // What caches hand out can still be encrypted to.
  assert.equal(retireForMs(policy, "enc"), 14_200_000);
});

describe("one refusal names values that work, however many are wrong", () => {
  const rows: readonly RotationPolicyOptions[] = [
    { rotateEveryDays: 1 },
    { rotateEveryDays: 0 },
    { rotateEveryDays: 1, announceForSeconds: 3600 },
    { rotateEveryDays: 0, announceForSeconds: 0 },
    { rotateEveryDays: 1, maxTokenLifetimeSeconds: 100_000 },
    { rotateEveryDays: 7, announceForSeconds: 7 * 86_400 },
    { rotateEveryDays: 1, cacheSlackSeconds: 30_000, clockSkewSeconds: 3600 },
  ];
  for (const options of rows) {
    test(JSON.stringify(options), () => {
      const message = refusalOf(options);
      const announceForSeconds = numberIn(message, /announceForSeconds is \d+ and must be at least (\d+)/);
      const rotateEveryDays = numberIn(message, /\(as a whole number: (\d+)\)/);
      const better = {
        ...options,
        ...(announceForSeconds !== undefined && { announceForSeconds }),
        ...(rotateEveryDays !== undefined && { rotateEveryDays }),
      };
      assert.doesNotThrow(() => rotationPolicy(better), message);
      if (rotateEveryDays !== undefined) {
        const less = { ...better, rotateEveryDays: rotateEveryDays - 1 };
        assert.throws(() => rotationPolicy(less), { code: "ERR_POLICY_INVALID" }, "it is the least");
      }
      const longest = numberIn(message, /or announceForSeconds at most (\d+)/);
      if (longest === undefined) return;
      assert.doesNotThrow(() => rotationPolicy({ ...options, announceForSeconds: longest }));
      assert.throws(() => rotationPolicy({ ...options, announceForSeconds: longest + 1 }));
    });
  }

  test("a whole number of days that can be had with a shorter announcement is not raised alone", () => {
    assert.match(refusalOf({ rotateEveryDays: 1 }), /whole number: 2\), or announceForSeconds at most 64200: /);
    assert.doesNotMatch(refusalOf({ rotateEveryDays: 0 }), /at most/);
  });
});

function refusalOf(options: RotationPolicyOptions): string {
  try {
    rotationPolicy(options);
  } catch (error) {
    return (error as Error).message;
  }
  return assert.fail("it is refused");
}
