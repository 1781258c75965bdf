import assert from "node:assert/strict";
import { describe, test } from "node:test";
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

test("a policy has the expected defaults, even for options that are undefined", () => {
  assert.deepEqual(rotationPolicy(), defaults);
  assert.deepEqual(rotationPolicy({ clockSkewSeconds: undefined }), defaults);
  assert.deepEqual(rotationPolicy({ clockSkewSeconds: 60 }), { ...defaults, clockSkewSeconds: 60 });
});

test("a policy is immutable and independent of its options", () => {
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

// Together with 7,200 s in caches (RFC 5861 section 3).
const announcement = {
  maxStaleSeconds: 600,
  cacheSlackSeconds: 1000,
  clockSkewSeconds: 200,
  announceForSeconds: 9000,
};
// The propagation period is 9,000 s; the old encryption key is removed after 600 + 3,600 + 2 * 200 + 7,200 + 1,000 s.
const rotation = { ...announcement, rotateEveryDays: 21_800 / 86_400 };

/** Policies at each bound, and just beyond it. */
const bounds: readonly (readonly [
  rule: string,
  at: RotationPolicyOptions,
  beyond: RotationPolicyOptions,
  patterns: readonly RegExp[],
  code?: "ERR_OPTION_INVALID",
])[] = [
  [
    "the propagation period is longer than any cache",
    announcement,
    { announceForSeconds: 8999 },
    [/announceForSeconds is 8999/, /at least 9000/, /600 s \(maxStaleSeconds\)/, /7200 s/, /1000 s \(/, /200 s \(/],
  ],
  ["the propagation period includes the slack", announcement, { cacheSlackSeconds: 1001 }, [/at least 9001/]],
  ["the propagation period includes the skew", announcement, { clockSkewSeconds: 201 }, [/at least 9001/]],
  [
    "the propagation period includes the time of a process that cannot read the store",
    announcement,
    { maxStaleSeconds: 601 },
    [/at least 9001/, /601 s \(maxStaleSeconds\)/],
  ],
  [
    "the other durations have their defaults",
    { announceForSeconds: 18_300 },
    { announceForSeconds: 18_299.999 },
    [/least 18300/],
  ],
  [
    "a rotation ends before the next one begins",
    rotation,
    { rotateEveryDays: 21_799 / 86_400 },
    [/rotateEveryDays is 0.252/, /at least 0.26 \(/, /9000 s \(announceForSeconds\)/, /12800 s/],
  ],
  ["a rotation includes the token lifetime", rotation, { maxTokenLifetimeSeconds: 3601 }, [/rotateEveryDays/]],
  [
    "a rotation includes the propagation period",
    rotation,
    { announceForSeconds: 9001 },
    [/rotateEveryDays/, /9001 s \(announceForSeconds\)/],
  ],
  [
    "every time in a plan is a valid date",
    { rotateEveryDays: 36_500 },
    { rotateEveryDays: 36_500.1 },
    [/at most 36500/],
  ],
  [
    "the slack may be zero",
    { clockSkewSeconds: 1, cacheSlackSeconds: 0, announceForSeconds: 10_801 },
    { announceForSeconds: 10_800 },
    [/at least 10801/],
  ],
  // With a smaller skew, every signature would be refused, because a store takes time to respond.
  ...["maxTokenLifetimeSeconds", "maxStaleSeconds", "clockSkewSeconds"].map(
    (name) =>
      [
        `${name} is at least a second`,
        { [name]: 1 },
        { [name]: 0.9 },
        [new RegExp(name)],
        "ERR_OPTION_INVALID",
      ] as const,
  ),
];

describe("a policy respects caches and tokens", () => {
  for (const [rule, at, beyond, patterns, code = "ERR_POLICY_INVALID"] of bounds) {
    test(rule, async () => {
      assert.deepEqual(rotationPolicy(at), { ...defaults, ...at });
      const { message } = await refusal(() => rotationPolicy({ ...at, ...beyond }), code);
      for (const pattern of patterns) assert.match(message, pattern);
    });
  }
});

test("periods are derived from a policy, in milliseconds", () => {
  const policy = rotationPolicy({ ...announcement, rotateEveryDays: 2, maxTokenLifetimeSeconds: 5000 });
  assert.equal(rotateEveryMs(policy), 172_800_000);
  assert.equal(announceForMs(policy), 9_000_000);
  assert.equal(leastAnnouncementSeconds(policy), 9000);
  // A process that has not read signs with the old key for 600 s, its token lives for 5,000 s, and twice the skew covers the clocks that begin
  // and end the period, and those that sign and verify the token.
  assert.equal(retireForMs(policy, "sig"), 6_000_000);
  // Clients may still encrypt to a key that caches serve.
  assert.equal(retireForMs(policy, "enc"), 14_200_000);
});

describe("a single error suggests a valid value for each invalid setting", () => {
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
      const announceForSeconds = numberIn(message, /announceForSeconds is \d+ but must be at least (\d+)/);
      const rotateEveryDays = numberIn(message, /\(rounded up to whole days: (\d+)\)/);
      const better = {
        ...options,
        ...(announceForSeconds !== undefined && { announceForSeconds }),
        ...(rotateEveryDays !== undefined && { rotateEveryDays }),
      };
      assert.doesNotThrow(() => rotationPolicy(better), message);
      if (rotateEveryDays !== undefined) {
        const less = { ...better, rotateEveryDays: rotateEveryDays - 1 };
        assert.throws(() => rotationPolicy(less), { code: "ERR_POLICY_INVALID" }, "it is the smallest");
      }
      const longest = numberIn(message, /or announceForSeconds must be at most (\d+)/);
      if (longest === undefined) return;
      assert.doesNotThrow(() => rotationPolicy({ ...options, announceForSeconds: longest }));
      assert.throws(() => rotationPolicy({ ...options, announceForSeconds: longest + 1 }));
    });
  }

  test("and offers a shorter propagation period as an alternative to a larger number of days", () => {
    assert.match(
      refusalOf({ rotateEveryDays: 1 }),
      /rounded up to whole days: 2\), or announceForSeconds must be at most 64200: /,
    );
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
