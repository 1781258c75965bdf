import assert from "node:assert/strict";
import { test } from "node:test";
import { exportJWK, generateKeyPair } from "jose";
import { soak } from "../support/soak.ts";
import { Run, hour } from "./run.ts";

const rotations = soak(5, 2);

async function newKey(): Promise<object> {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  return { ...(await exportJWK(privateKey)), alg: "ES256", use: "sig" };
}

test(`without jwksd, ${rotations} keys put into jwks by hand and processes restarted: users notice`, async (t) => {
  let jwk = await newKey();
  const run = await Run.start(t, () => ({ jwks: [jwk] }));
  for (let count = 0; count < rotations; count += 1) {
    await run.step(6 * hour);
    jwk = await newKey();
    await run.restart();
    await run.restart();
    await run.step(hour);
  }
  const [failed, refused] = [run.failed.length, Object.values(run.refused).reduce((sum, count) => sum + count)];
  t.diagnostic(`${failed} visits failed, ${refused} ID tokens were refused: ${run.report()}`);
  assert.ok(failed > 0 && refused > 0);
});
