import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { pageVerifier } from "../support/chromium.ts";
import { isSoak } from "../support/soak.ts";
import { startProvider } from "../support/verifier-op.ts";
import { assertLivedThrough, rotate, verifierScript } from "../support/verifier-run.ts";

const timeout = 60_000;

/** @param browser which is there when the tests run */
export function checkRotation(browser: () => Browser, swaps: number): void {
  describe("a page of another origin", () => {
    test(
      `lives through ${swaps} swaps: no valid token refused, at most one refetch per swap, no preflight; a cold start`,
      { timeout },
      async (t) => {
        const op = await startProvider(t);
        const report = await rotate(op, pageVerifier(t, browser(), op, verifierScript), swaps);
        const sets = assertLivedThrough(op, swaps, report);
        t.diagnostic(`${report.verified} verifications, ${sets} requests for ${swaps} swaps`);
        for (const { headers } of op.requests) {
          assert.equal(headers["sec-fetch-mode"], "cors");
          assert.match(headers.origin ?? "", /^http:/);
          assert.notEqual(headers.origin, op.issuer);
        }

        await op.stop();
        const offline = await rotate(
          op,
          pageVerifier(t, browser(), op, verifierScript, { state: report.state }),
          0,
          swaps,
        );
        assert.deepEqual(offline.failures, {});
        assert.ok(offline.verified > 0);
      },
    );

    if (!isSoak) return;
    test("would not if an unknown kid were left to its HTTP cache", { timeout }, async (t) => {
      const op = await startProvider(t);
      const report = await rotate(
        op,
        pageVerifier(t, browser(), op, verifierScript, { kind: "leaves refetches to the HTTP cache" }),
        3,
      );
      assert.deepEqual(Object.keys(report.failures), ["ERR_TOKEN_KID_UNKNOWN"]);
      assert.equal(op.requests.length, 2, "discovery and the first set");
    });
  });
}
