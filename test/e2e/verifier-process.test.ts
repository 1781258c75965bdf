import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { soak } from "../support/soak.ts";
import { startProvider, startServe } from "../support/verifier-op.ts";
import { assertLivedThrough, processVerifier, rotate, verifierScript } from "../support/verifier-run.ts";

const node = [process.execPath, verifierScript] as const;

describe("a verifier process lives through a rotation of jwksd serve", () => {
  const rows = [
    { swaps: soak(300, 20), latencyMs: 0 },
    // The next swap comes while the answer is on its way, which tells nothing about the kid of that.
    { swaps: soak(60, 10), latencyMs: 25 },
  ];
  for (const { swaps, latencyMs } of rows) {
    test(`${swaps} swaps, ${latencyMs} ms away: no valid token refused, at most one refetch per swap`, async (t) => {
      const op = await startServe(t, { latencyMs });
      const report = await rotate(op, processVerifier(t, op, node), swaps);
      const sets = assertLivedThrough(op, swaps, report);
      t.diagnostic(`${report.verified} verifications, ${sets} requests for ${swaps} swaps`);
    });
  }

  test("which one that never refetches does not", async (t) => {
    const op = await startProvider(t);
    const report = await rotate(op, processVerifier(t, op, node, { kind: "never refetches" }), 10);
    assert.deepEqual(Object.keys(report.failures), ["ERR_JWKS_NO_MATCHING_KEY"]);
  });
});
