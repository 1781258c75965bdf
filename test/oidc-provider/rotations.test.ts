import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { newWrappingKey } from "../support/managed.ts";
import { memoryFolder } from "../support/service.ts";
import { exportJWK, generateKeyPair } from "jose";
import { isSoak } from "../support/soak.ts";
import { createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";
import { Run, hour } from "./run.ts";

// Users of a real oidc-provider, whose keys are managed.

const rotations = 8;

const lanes = [
  { where: "in the store", hsm: false, skip: false as string | false },
  { where: "in SoftHSM", hsm: true, skip: skipWithoutPkcs11() },
];
if (isSoak)
  for (const { where, hsm, skip } of lanes) {
    const title = `${rotations} rotations of keys ${where}, two restarts, a revocation and a kill: four users notice nothing`;
    test(title, { skip }, async (t) => {
      const token = hsm ? await createSoftHsm(t) : undefined;
      const store = join(await memoryFolder(t), "keys.db");
      const wrappingKey = newWrappingKey();
      const run = await Run.start(t, () => ({ store, wrappingKey, hsm: token }));
      const incidents = [
        () => run.restart(),
        () => revoke(run),
        () => run.restart(),
        async () => (await run.add(), run.visitDuring(() => run.site.kill())),
      ];
      const rotated = (): number => run.inState("retiring", "removed").length;
      for (const [index, incident] of incidents.entries()) {
        while (rotated() < (rotations * index) / incidents.length) await run.step();
        await incident();
      }
      while (rotated() < rotations) await run.step();
      t.diagnostic(run.report());
      assert.deepEqual([run.failed, run.refused], [[], { createRemoteKeySet: 0, createRemoteJWKSet: 0 }]);
      // Each user may have been at the process that was killed, and may have been about to get a token of the key that was revoked.
      assert.ok(run.interrupted.length <= 8, `${run.interrupted.length} visits were interrupted`);
      assert.ok(run.inState("removed").length >= rotations - 2, "keys were removed");
    });
  }

async function revoke(run: Run): Promise<void> {
  // A key is announced, and caches know it.
  while (run.inState("announced").length === 0) await run.step();
  for (let hours = 0; hours < 3; hours += 1) await run.step(hour);
  const [kid = ""] = run.inState("active");
  await run.visitDuring(async () => {
    await run.site.replicas[0]?.ask({ type: "revoke" });
    run.forget(kid);
  });
  assert.deepEqual(run.inState("revoked"), [kid]);
  run.forget(kid);
}

async function newKey(): Promise<object> {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  return { ...(await exportJWK(privateKey)), alg: "ES256", use: "sig" };
}

// Beside it, what users meet without jwksd.
if (isSoak)
  test("without jwksd, five keys put into jwks by hand and processes restarted: users notice", async (t) => {
    let jwk = await newKey();
    const run = await Run.start(t, () => ({ jwks: [jwk] }));
    for (let count = 0; count < 5; count += 1) {
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
