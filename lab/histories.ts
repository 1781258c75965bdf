import type { Answer } from "./issuer.ts";

/** A provider's actions, and the tokens that arrive in the meantime. Times are seconds since the first token. */
export interface History {
  readonly name: string;
  readonly about: string;
  /** Responses to requests for the set, each with the time from which it is sent. */
  readonly answers: readonly (readonly [at: number, answer: Answer])[];
  readonly tokens: readonly (readonly [at: number, kid: string])[];
}

const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;

/**
 * Returns a time just after another one. By then, anything kept for a round time has expired, so nothing depends on
 * milliseconds.
 */
const after = (seconds: number): number => seconds + 1;

/** Returns a time for each `step` seconds of a period. */
const each = (step: number, from: number, to: number): number[] =>
  Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, index) => after(from + index * step));

/** Returns times from `from` to `to`: close together at first, then further apart. */
const thinning = (from: number, to: number): number[] =>
  (
    [
      [5, 0, 2 * minute],
      [30, 2 * minute, hour],
      [5 * minute, hour, 3 * hour],
      [15 * minute, 3 * hour, day],
      [hour, day, 3 * day],
      // The last one is just after a year.
      [181 * day, 3 * day, 366 * day],
    ] as const
  ).flatMap(([step, start, end]) => each(step, from + start, Math.min(from + end, to)));

const sent = (kid: string, moments: readonly number[]) => moments.map((at) => [at, kid] as const);
/** Returns a token for each kid at each time. */
const inTurn = (kids: readonly string[], moments: readonly number[]) =>
  moments.flatMap((at) => kids.map((kid) => [at, kid] as const));

const first = [0, "a"] as const;
const calm = 20 * minute;

const lifetime = (name: string, about: string, maxAge: number): History => ({
  name,
  about,
  answers: [
    [0, { keys: ["a", "b"], maxAge }],
    [0.5, { keys: ["b"], maxAge }],
  ],
  tokens: [first, [0, "b"], ...inTurn(["b", "a"], thinning(0, 366 * day))],
});

/** Returns a history in which the new key is published just after the verifier fetched the set: the worst moment. */
const rotation = (name: string, about: string, lead: number): History => ({
  name,
  about,
  answers: [
    [0, { keys: ["a"] }],
    [0.5, { keys: ["a", "b"] }],
  ],
  tokens: [
    first,
    ...sent("a", thinning(0, lead)),
    ...sent("b", [...each(1, lead, lead + 2 * minute), ...thinning(lead + 2 * minute, lead + 2 * day)]),
  ],
});

/** Returns a history in which an issuer's keys are all revoked and its tokens keep arriving. */
const decommissioned = (name: string, about: string, answer: Answer): History => ({
  name,
  about: `an issuer is decommissioned: after a set with max-age of 5 minutes, ${about}`,
  answers: [
    [0, { keys: ["a"], maxAge: 5 * minute }],
    [0.5, answer],
  ],
  tokens: [first, ...sent("a", thinning(0, 366 * day))],
});

/** Returns a history with a fault that begins just before a refetch and lasts for some time. */
const trouble = (name: string, about: string, start: number, duration: number, wrong: Answer): History => ({
  name,
  about,
  answers: [
    [0, { keys: ["a", "b"] }],
    [start, wrong],
    [start + duration, { keys: ["a", "b"] }],
  ],
  tokens: [
    first,
    [0, "b"],
    ...sent("b", [
      ...each(5, start, Math.min(start + duration, start + 10 * minute)),
      ...each(50, start + 10 * minute, start + duration),
      ...each(5, start + duration, start + duration + 10 * minute),
    ]),
  ],
});

/** Returns a time just before a verifier refetches on its own, which it does after `poll` seconds, or never. */
export const troubleAt = (poll: number | null): number => Math.max(poll ?? hour, minute) - 0.5;

/** Returns all histories for a verifier that refetches on its own after `poll` seconds, or never. */
export function histories(poll: number | null): readonly History[] {
  const start = troubleAt(poll);
  const unknown = Array.from({ length: 1_000 }, (_, index) => [after(calm) + index * 0.103, `x${index}`] as const);
  return [
    lifetime("max-age-0", "a key is removed, with max-age=0", 0),
    lifetime("max-age-5m", "a key is removed, with a max-age of 5 minutes", 5 * minute),
    lifetime("max-age-1h", "a key is removed, with a max-age of 1 hour", hour),
    lifetime("max-age-1y", "a key is removed, with a max-age of 1 year", 365 * day),
    {
      name: "removed-busy",
      about: "a key is removed, and its tokens keep arriving, one every 50 seconds for a day",
      answers: [
        [0, { keys: ["a", "b"] }],
        [0.5, { keys: ["b"] }],
      ],
      tokens: [first, ...sent("a", each(50, 0, day))],
    },
    rotation("rotation-0", "a new key starts signing immediately, just after the set was fetched", 0),
    rotation("rotation-5m", "a new key starts signing after 5 minutes", 5 * minute),
    rotation("rotation-2h", "a new key starts signing after 2 hours", 2 * hour),
    rotation("rotation-1d", "a new key starts signing after a day", day),
    {
      name: "rotation-calm",
      about: "a new key starts signing immediately, 20 minutes after the first token",
      answers: [
        [0, { keys: ["a"] }],
        [calm, { keys: ["a", "b"] }],
      ],
      tokens: [first, ...sent("a", thinning(0, calm)), ...sent("b", thinning(calm, calm + 2 * day))],
    },
    {
      name: "revoked",
      about: "the only key is replaced immediately, and its tokens keep arriving, one every 50 seconds for a day",
      answers: [
        [0, { keys: ["a"] }],
        [0.5, { keys: ["b"] }],
      ],
      tokens: [first, ...inTurn(["a", "b"], [...each(1, 0, 2 * minute), ...each(50, 2 * minute, day)])],
    },
    decommissioned("decommissioned-set", "a set with one key that never signs, with max-age of 5 minutes", {
      keys: ["z"],
      maxAge: 5 * minute,
    }),
    decommissioned("decommissioned-empty", "an empty set, with max-age of 5 minutes", { keys: [], maxAge: 5 * minute }),
    decommissioned("decommissioned-404", "status 404", { keys: [], status: 404 }),
    decommissioned("decommissioned-410", "status 410", { keys: [], status: 410 }),
    trouble("away-1m", "status 503 for a minute", start, minute, { keys: [], status: 503 }),
    trouble("away-1h", "status 503 for an hour", start, hour, { keys: [], status: 503 }),
    trouble("away-1d", "status 503 for a day", start, day, { keys: [], status: 503 }),
    trouble("limited", "status 429 with Retry-After: 120, for 10 minutes", start, 10 * minute, {
      keys: [],
      status: 429,
      headers: { "retry-after": "120" },
    }),
    trouble("back", "the set reverts to an older one, for 10 minutes", start, 10 * minute, { keys: ["a"] }),
    trouble("empty", "a set without keys, for 10 minutes", start, 10 * minute, { keys: [] }),
    {
      name: "unknown-once",
      about: "one forged kid, then a new key that starts signing immediately",
      answers: [
        [0, { keys: ["a"] }],
        [calm + 1.5, { keys: ["a", "b"] }],
      ],
      tokens: [
        first,
        ...sent("a", thinning(0, calm)),
        [after(calm), "x"],
        ...sent("b", [...each(1, after(calm), calm + 2 * minute), ...thinning(calm + 2 * minute, calm + 2 * day)]),
      ],
    },
    {
      name: "unknown-1000",
      about: "1,000 forged kids within 103 seconds",
      answers: [[0, { keys: ["a"] }]],
      tokens: [first, ...sent("a", thinning(0, calm)), ...unknown, ...sent("a", each(5, calm + 110, calm + 150))],
    },
    {
      name: "age",
      about: "a cache responds with Age: 3500 and max-age=3600",
      answers: [[0, { keys: ["a"], age: 3_500 }]],
      tokens: [first, ...sent("a", thinning(0, 2 * hour))],
    },
    {
      name: "redirect",
      about: "the set's URL redirects",
      answers: [[0, { keys: ["a"], redirects: true }]],
      tokens: [first],
    },
    {
      name: "same-validator",
      about: "a new key is published a day before it signs, but the set keeps its old ETag",
      answers: [
        [0, { keys: ["a"], etag: '"same"' }],
        [0.5, { keys: ["a", "b"], etag: '"same"' }],
      ],
      tokens: [first, ...sent("a", thinning(0, day)), ...sent("b", thinning(day, 3 * day))],
    },
    {
      name: "disagree",
      about: "for an hour, two servers respond in turn, and one of them does not have the new key",
      answers: [
        [0, { keys: ["a"] }],
        [0.5, { keys: ["a", "b"], otherKeys: ["a"] }],
      ],
      tokens: [first, ...sent("b", each(5, 0, hour))],
    },
    {
      name: "hang",
      about: "the server accepts the request and does not respond",
      answers: [
        [0, { keys: ["a"] }],
        [start, { keys: ["a"], hangs: true }],
      ],
      tokens: [first, [after(start), "a"], [after(start) + 2 * minute, "x"]],
    },
  ];
}
