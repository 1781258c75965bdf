import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { part, skipWithout } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { type RotatingOp, startProvider } from "../support/verifier-op.ts";
import {
  type Verifier,
  type VerifierOptions,
  assertLivedThrough,
  bundle,
  processVerifier,
  rotate,
  verifierScript,
} from "../support/verifier-run.ts";

const timeout = 60_000;
const flags = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A page of another origin than the provider, in a browser that has never been anywhere. */
async function startPage(t: TestContext, op: RotatingOp, options: VerifierOptions = {}): Promise<Verifier> {
  const folder = await temporaryFolder(t);
  const script = join(folder, "page.js");
  await bundle(verifierScript, script);
  const command = [part("chromium"), ...flags, `--user-data-dir=${join(folder, "profile")}`] as const;
  return processVerifier(t, op, command, { ...options, script });
}

describe("a page of another origin in Chromium", { skip: skipWithout("chromium") }, () => {
  test(
    "lives through 50 swaps: no valid token refused, at most one refetch per swap, no preflight; a cold start",
    { timeout },
    async (t) => {
      const op = await startProvider(t);
      const report = await rotate(op, await startPage(t, op), 50);
      const sets = assertLivedThrough(op, 50, report);
      t.diagnostic(`${report.verified} verifications, ${sets} requests for 50 swaps`);
      for (const { headers } of op.requests) {
        assert.equal(headers["sec-fetch-mode"], "cors");
        assert.match(headers.origin ?? "", /^http:/);
        assert.notEqual(headers.origin, op.issuer);
      }

      await op.stop();
      const offline = await rotate(op, await startPage(t, op, { state: report.state }), 0, 50);
      assert.deepEqual(offline.failures, {});
      assert.ok(offline.verified > 0);
    },
  );

  test("would not if an unknown kid were left to its HTTP cache", { timeout }, async (t) => {
    const op = await startProvider(t);
    const report = await rotate(op, await startPage(t, op, { kind: "leaves refetches to the HTTP cache" }), 3);
    assert.deepEqual(Object.keys(report.failures), ["ERR_TOKEN_KID_UNKNOWN"]);
    assert.equal(op.requests.length, 2, "discovery and the first set");
  });
});
