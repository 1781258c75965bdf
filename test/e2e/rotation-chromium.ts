import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { pageVerifier } from "../support/chromium.ts";
import { isSoak } from "../support/soak.ts";
import { startProvider } from "../support/verifier-op.ts";
import { assertLivedThrough, rotate, verifierScript } from "../support/verifier-run.ts";

const timeout = 60_000;

/** Defines the tests. @param browser returns the browser, once the tests run */
export function checkRotation(browser: () => Browser, swaps: number): void {
  describe("a page from another origin", () => {
    test(
      `accepts every valid token through ${swaps} swaps, with at most one refetch per swap and no preflight, and starts from saved state`,
      { timeout },
      async (t) => {
        const op = await startProvider(t);
        const report = await rotate(op, pageVerifier(t, browser(), op, verifierScript), swaps);
        const sets = assertLivedThrough(op, swaps, report);
        t.diagnostic(`${report.verified} valid tokens, ${sets} requests for ${swaps} swaps`);
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
    test(
      "refuses valid tokens if its refetch for an unknown kid may come from the HTTP cache",
      { timeout },
      async (t) => {
        const op = await startProvider(t);
        const report = await rotate(
          op,
          pageVerifier(t, browser(), op, verifierScript, { kind: "leaves refetches to the HTTP cache" }),
          3,
        );
        assert.deepEqual(Object.keys(report.failures), ["ERR_TOKEN_KID_UNKNOWN"]);
        assert.equal(op.requests.length, 2, "discovery and the first set");
      },
    );
  });
}
