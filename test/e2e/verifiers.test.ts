import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { SignJWT, importJWK } from "jose";
import { type NamedKey, named, rsaKey } from "../support/keys.ts";
import { type Scope, startService, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { startProvider, startServe } from "../support/verifier-op.ts";
import { assertLivedThrough, processVerifier, rotate, verifierScript } from "../support/verifier-run.ts";
import { type VerifiedProvider, audience, discover, nonce, verifiers } from "./verifier-matrix.ts";

describe("verifier libraries with a running service", { timeout: 60_000 }, () => {
  const ends: (() => Promise<void>)[] = [];
  let running: Awaited<ReturnType<typeof start>>;
  before(async () => {
    running = await start({ after: (end) => void ends.unshift(end) });
  });
  after(async () => {
    for (const end of ends) await end();
  });

  for (const { name, make, unknownKid } of verifiers) {
    test(`${name} verifies tokens signed with the active and the retiring key, and rejects an unknown kid`, async () => {
      const { provider, token } = running;
      const verify = make(provider);
      await verify(await token("active"));
      await verify(await token("retiring"));
      // The active key must not be tried for another kid.
      await assert.rejects(verify(await token("unknown", "active")), unknownKid);
    });
  }

  test("openid-client discovers the provider", async () => {
    const { provider } = running;
    assert.partialDeepStrictEqual((await discover(provider.issuer)).serverMetadata(), {
      issuer: provider.issuer,
      jwks_uri: provider.jwksUri,
      id_token_signing_alg_values_supported: ["ES256"],
    });
  });

  test("each library finds the new key after a rotation", async (t) => {
    const { provider, token, rotate } = running;
    const all = verifiers.map(({ name, make, unknownKid }) => ({ name, make, unknownKid, verify: make(provider) }));
    for (const { verify, make, unknownKid } of all) {
      await verify(await token("active"));
      await assert.rejects(make(provider)(await token("next")), unknownKid);
    }
    await rotate();
    for (const { name, verify } of all) {
      await t.test(name, async () => {
        await verify(await token("next"));
        await verify(await token("active"));
      });
    }
  });
});

/** Starts the service with two signing keys and an encryption key, at a path that only discovery reveals. */
async function start(t: Scope) {
  const folder = await temporaryFolder(t);
  const [keys, encryptionKeys] = [join(folder, "keys.json"), join(folder, "encryption.json")];
  await writeKeys(keys, named("active"), named("retiring"));
  await writeKeys(encryptionKeys, named("encryption", rsaKey()));
  const paths = ["--mount-prefix", "/provider", "--jwks-path", "/keys"];
  const service = await startService(t, ["--keys", keys, "--encryption-keys", encryptionKeys, ...paths]);
  const provider: VerifiedProvider = { issuer: `http://127.0.0.1:${service.port}`, jwksUri: service.jwksUri };
  return {
    provider,
    token: async (kid: string, keyOf = kid) =>
      new SignJWT({ nonce })
        .setProtectedHeader({ alg: "ES256", kid })
        .setIssuer(provider.issuer)
        .setAudience(audience)
        .setSubject("subject")
        .setIssuedAt()
        .setExpirationTime("5m")
        .sign(await importJWK(named(keyOf), "ES256")),
    rotate: async () => {
      await writeKeys(keys, named("next"), named("active"));
      await service.logged(({ msg }) => msg === "keys reloaded");
    },
  };
}

function writeKeys(file: string, ...keys: NamedKey[]): Promise<void> {
  return writeFile(file, JSON.stringify({ keys }), { mode: 0o600 });
}

const node = [process.execPath, verifierScript] as const;

describe("a verifier process while jwksd serve rotates keys", () => {
  const rows = [
    { swaps: soak(300, 10), latencyMs: 0 },
    // The next swap happens while the response is in transit, so the response does not have its kid.
    { swaps: soak(60, 6), latencyMs: 25 },
  ];
  for (const { swaps, latencyMs } of rows) {
    test(`accepts every valid token through ${swaps} swaps at ${latencyMs} ms latency, with at most one refetch per swap`, async (t) => {
      const op = await startServe(t, { latencyMs });
      const report = await rotate(op, processVerifier(t, op, node), swaps);
      const sets = assertLivedThrough(op, swaps, report);
      t.diagnostic(`${report.verified} valid tokens, ${sets} requests for ${swaps} swaps`);
    });
  }

  test("rejects valid tokens if it never refetches", async (t) => {
    const op = await startProvider(t);
    const report = await rotate(op, processVerifier(t, op, node, { kind: "never refetches" }), 3);
    assert.deepEqual(Object.keys(report.failures), ["ERR_JWKS_NO_MATCHING_KEY"]);
  });
});
