import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type HttpExchange, type Finding, type Observations, examine } from "../../src/doctor/index.ts";
import { type TimelineEvent, type WatchOptions, watchJwkSet } from "../../src/doctor/node/index.ts";
import { intervalFor } from "../../src/doctor/node/watch.ts";
import { ecKey } from "../support/keys.ts";
import { simulatedClock } from "../support/simulated.ts";
import { compact, signature } from "../token/compact.ts";
import { bytes, observed, published, response } from "./observed.ts";
import { waitedFor } from "./waited-for.ts";

const second = 1000;
const hour = 3600 * second;
const setOf = (...kids: readonly string[]): HttpExchange =>
  response(bytes({ keys: kids.map((kid) => published(kid)) }));

interface Watched {
  readonly codes: readonly string[];
  readonly findings: readonly Finding[];
  readonly observations: Observations;
  /** Events, each with the seconds since the beginning. */
  readonly timeline: readonly string[];
  readonly asked: number;
}

/** Watches a provider whose response depends on the simulated time. */
async function watched(
  answer: (elapsedMs: number) => HttpExchange,
  choice: Partial<WatchOptions> & { readonly durationMs: number },
): Promise<Watched> {
  const time = simulatedClock();
  const { clock, waiting } = waitedFor(time);
  const startMs = clock.now();
  const { discovery, issuer } = observed();
  const timeline: string[] = [];
  let asked = 0;
  let isOver = false;
  const options: WatchOptions = {
    clock,
    ask: async () => {
      asked += 1;
      return answer(clock.now() - startMs);
    },
    onEvent: ({ at, text }: TimelineEvent) => void timeline.push(`${(at - startMs) / second} ${text}`),
    ...choice,
  };
  const watching = watchJwkSet({ at: startMs, issuer, discovery, set: answer(0) } as Observations, options).finally(
    () => (isOver = true),
  );
  for (;;) {
    await waiting(() => isOver);
    if (isOver) break;
    await time.advance(choice.intervalMs ?? intervalFor(choice.durationMs));
  }
  const observations = await watching;
  const findings = await examine(observations);
  return { codes: findings.map(({ code }) => code), findings, observations, timeline, asked };
}

describe("a watch", () => {
  test("fetches every five seconds and keeps the first and last of several identical responses", async () => {
    const { codes, timeline, asked, observations } = await watched(() => setOf("a"), { durationMs: 60 * second });
    assert.deepEqual([codes, asked, observations.laterFetches?.length], [[], 12, 2]);
    assert.deepEqual(timeline, ['0 one key: "a"', "0 caches may serve this set for 7200 s"]);
  });

  test("fetches at most 720 times, however long it lasts", async () => {
    const { asked } = await watched(() => setOf("a"), { durationMs: 30 * 24 * hour });
    assert.equal(asked, 720);
    assert.equal(intervalFor(hour), 5 * second);
    assert.equal(intervalFor(second), second / 4);
  });

  test("reports each change when it happens", async () => {
    const moments: readonly (readonly [fromSecond: number, set: HttpExchange])[] = [
      [0, setOf("a")],
      [10, setOf("a", "b")],
      [20, response(bytes({ keys: [published("b"), published("a")] }))],
      [30, { status: 502, headers: [] }],
      [40, response(bytes({ keys: [published("b"), published("a")] }), { "cache-control": "max-age=60" })],
      [50, response(bytes({ keys: [published("b", ecKey("other"))] }), { "cache-control": "max-age=60" })],
    ];
    const { codes, timeline } = await watched(
      (elapsedMs) => moments.findLast(([from]) => from * second <= elapsedMs)?.[1] as HttpExchange,
      { durationMs: 55 * second },
    );
    assert.deepEqual(timeline.slice(2), [
      '10 key added: kid "b"',
      "20 the document has changed, but its keys have not",
      "30 no set: status 502",
      "40 the set is back, with 2 keys",
      '50 kid "b" now identifies a different key',
      '50 key withdrawn: kid "a"',
    ]);
    assert.deepEqual(codes, ["WATCH_KID_REUSED", "WATCH_LIFETIME_TOO_LONG", "WATCH_UNREACHABLE"]);
  });

  test("detects nodes that disagree", async () => {
    const answer = (ms: number): HttpExchange => (ms % (10 * second) === 0 ? setOf("a", "c") : setOf("b", "c"));
    const { findings, codes, timeline } = await watched(answer, { durationMs: 60 * second });
    assert.deepEqual(codes, ["WATCH_NODES_DISAGREE"]);
    assert.match(
      findings[0]?.seen.join() ?? "",
      /^an earlier set came back 11 times; only some responses contain kid "a", "b"$/,
    );
    assert.equal(timeline.length, 26);
  });

  test("treats the same keys in a different order or format as unchanged", async () => {
    const [a, b] = [published("a"), published("b")];
    const texts = [
      bytes({ keys: [a, b] }),
      bytes({ keys: [b, a] }),
      bytes(JSON.stringify({ keys: [a, b] }, undefined, 2)),
    ];
    const { codes } = await watched((ms) => response(texts[(ms / (5 * second)) % 3] as Uint8Array), {
      durationMs: 60 * second,
    });
    assert.deepEqual(codes, []);
  });

  test("detects an ETag that changes even though the bytes do not", async () => {
    const body = bytes({ keys: [published("a")] });
    const { codes } = await watched((ms) => response(body, { etag: `"${ms}"` }), { durationMs: 20 * second });
    assert.deepEqual(codes, ["HTTP_ETAG_CHANGES"]);
  });

  test("returns the results so far when its caller aborts it", async () => {
    const controller = new AbortController();
    const { asked } = await watched(
      (ms) => {
        if (ms === 15 * second) controller.abort();
        return setOf("a");
      },
      { durationMs: hour, signal: controller.signal },
    );
    assert.equal(asked, 3);
  });

  test("ends when a server has sent too many different sets", async () => {
    const { timeline, asked } = await watched((ms) => response(Buffer.alloc(5_000_000, `x${ms}`)), {
      durationMs: hour,
    });
    assert.equal(asked, 10);
    assert.match(timeline.at(-1) ?? "", /the watch ended early/);
  });
});

const token = (kid: string, issuedMs: number, lifetimeSeconds = 3600): string => {
  const iat = Math.floor(issuedMs / 1000);
  return compact({ alg: "ES256", kid }, { iat, exp: iat + lifetimeSeconds }, signature("ES256", ecKey(kid)));
};

describe("a watch with tokens", () => {
  const startMs = simulatedClock().now();

  /** Watches a provider that publishes a key at one hour and signs with it from another. */
  const rotating = (publishedAt: number, signsFrom: number, withdrawnAt = Infinity) => {
    let elapsedMs = 0;
    return watched(
      (ms) => {
        elapsedMs = ms;
        if (ms < publishedAt * hour) return setOf("a");
        return ms < withdrawnAt * hour ? setOf("a", "b") : setOf("b");
      },
      {
        durationMs: 12 * hour,
        intervalMs: hour / 6,
        tokens: async () => [token(elapsedMs < signsFrom * hour ? "a" : "b", startMs + elapsedMs)],
      },
    );
  };

  test("finds no problem if a key is announced for longer than caches keep a set and stays published until its tokens expire", async () => {
    const { codes, timeline } = await rotating(1, 3.5, 5);
    assert.deepEqual(codes, []);
    assert.ok(timeline.some((line) => /^\d+ first token with kid "b"$/.test(line)));
  });

  test("detects a key that is used for signing before caches have it", async () => {
    assert.deepEqual((await rotating(1, 2)).codes, ["WATCH_SIGNS_UNANNOUNCED"]);
    assert.deepEqual((await rotating(3, 1)).codes, ["WATCH_SIGNS_UNANNOUNCED"]);
  });

  test("detects a key that is withdrawn while its tokens are still valid", async () => {
    assert.deepEqual((await rotating(1, 3.5, 4)).codes, ["WATCH_KEY_WITHDRAWN"]);
  });

  test("discards input that is not a token or does not name a key", async () => {
    const nonsense = ["", "nonsense", "a.b.c", compact({ alg: "none" }, {}, () => new Uint8Array())];
    const { codes, observations } = await watched(() => setOf("a"), {
      durationMs: 10 * second,
      tokens: async () => nonsense,
    });
    assert.deepEqual([codes, observations.tokens], [[], []]);
  });
});
