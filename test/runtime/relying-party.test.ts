import assert from "node:assert/strict";
import { type TestContext, describe, test } from "node:test";
import type { KeySetState } from "../../src/verify/relying-party/index.ts";
import { binary } from "../support/bundle.ts";
import { eventually } from "../support/service.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type RotatingOp, startProvider, tokenOf } from "../support/verifier-op.ts";
import { type Verifier, assertLivedThrough, processVerifier, rotate, verifierScript } from "../support/verifier-run.ts";
import { sendToken, startWorkerd, workerdVerifier } from "./verifier-workerd.ts";

type MakeVerifier = (t: TestContext, op: RotatingOp, state?: unknown) => Verifier;

const swaps = soak(50);

const run =
  (...command: readonly [string, ...string[]]): MakeVerifier =>
  (t, op, state) =>
    processVerifier(t, op, [...command, verifierScript], { state });

const runtimes: readonly (readonly [name: string, MakeVerifier])[] = [
  ["Node", run(process.execPath)],
  ["Bun", run(binary("bun"))],
  ["Deno", run(binary("deno"), "run", "--no-prompt", "--allow-net=127.0.0.1", "--allow-read")],
];

const recent = "2026-10-01";
// The day before workerd introduced the "no-cache" cache mode.
const old = "2025-08-06";

for (const [name, makeVerifier] of runtimes) {
  test(`${name}: never rejects a token during ${swaps} key changes, refetches at most once per change, and starts offline`, async (t) => {
    await liveThrough(t, makeVerifier);
  });
}

for (const compatibilityDate of [old, recent]) {
  for (const createdBy of ["module", "first request"] as const) {
    // Outside a soak, each value is tested once.
    if (!isSoak && (compatibilityDate === old) !== (createdBy === "module")) continue;
    test(`workerd with compatibility date ${compatibilityDate}, key set created by the ${createdBy}: ${swaps} key changes and an offline start`, async (t) => {
      const op = await liveThrough(t, (t, op, state) =>
        workerdVerifier(t, op, { compatibilityDate, createdBy, state }),
      );
      // workerd tells Cloudflare's cache, which is between a worker and its provider, with this header.
      assert.equal(op.requests.at(-1)?.headers.pragma, compatibilityDate === old ? undefined : "no-cache");
    });
  }
}

async function liveThrough(t: TestContext, makeVerifier: MakeVerifier): Promise<RotatingOp> {
  const op = await startProvider(t);
  const report = await rotate(op, makeVerifier(t, op), swaps);
  const sets = assertLivedThrough(op, swaps, report);
  t.diagnostic(`${report.verified} tokens verified, ${sets} requests for ${swaps} key changes`);

  await op.stop();
  const offline = await rotate(op, makeVerifier(t, op, report.state), 0, swaps);
  assert.deepEqual(offline.failures, {});
  assert.ok(offline.verified > 0);
  assert.equal(offline.refusals[0], "ERR_FETCH_FAILED", "offline, an unknown kid cannot be looked up");
  return op;
}

describe("in workerd, which cancels a request's work when the request ends", { concurrency: 3 }, () => {
  test("a stale set is revalidated before the response", async (t) => {
    const { op, url } = await startAged(t, 3_700);
    await op.publish(1);
    await sendToken(url, await tokenOf(op, 0));
    const reached = op.requests.length;
    await sendToken(url, await tokenOf(op, 1));
    assert.equal(op.requests.length, reached, "the new key is known");
  });

  test("revalidation delays a response only briefly; the keys are refetched a second later", async (t) => {
    const { op, url } = await startAged(t, 3_700);
    await op.publish(1);
    const release = op.hold();
    await sendToken(url, await tokenOf(op, 0));
    release();
    const token = await tokenOf(op, 1);
    await assert.rejects(sendToken(url, token), { code: "ERR_KEYS_RETRY_LATER" });
    await eventually("the new key is found", () =>
      sendToken(url, token).then(
        () => true,
        () => false,
      ),
    );
  });

  test("the set is not refetched before it expires, because that would delay requests", async (t) => {
    const { op, url } = await startAged(t, 3_550);
    await op.publish(1);
    const release = op.hold();
    await sendToken(url, await tokenOf(op, 0));
    release();
    await sendToken(url, await tokenOf(op, 1));
  });

  test("a request that gives up does not keep others waiting", async (t) => {
    const op = await startProvider(t);
    const url = await startWorkerd(t, op, { compatibilityDate: recent, timeoutMs: 500 });
    await sendToken(url, await tokenOf(op, 0));
    await op.publish(1);
    const token = await tokenOf(op, 1);
    const release = op.hold();
    await sendToken(`${url}/give-up`, token);
    release();
    // A request that joins an ended fetch can only time out.
    await assert.rejects(sendToken(url, token), { code: "ERR_FETCH_TIMEOUT" });
    await sendToken(url, token);
  });
});

/** Starts a worker whose set is this old; after an hour, it is within stale-while-revalidate. */
async function startAged(
  t: TestContext,
  ageSeconds: number,
): Promise<{ readonly op: RotatingOp; readonly url: string }> {
  const op = await startProvider(t);
  const first = await startWorkerd(t, op, { compatibilityDate: recent });
  await sendToken(first, await tokenOf(op, 0));
  const state = (await (await fetch(first)).json()) as KeySetState;
  const { headers, requestedAt } = state;
  // Its Date header would contradict that age.
  const aged = { ...state, headers: { ...headers, date: undefined }, requestedAt: requestedAt - ageSeconds * 1000 };
  return { op, url: await startWorkerd(t, op, { compatibilityDate: recent, state: aged }) };
}
