import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type Provider,
  type ProviderEvent,
  type ProviderOptions,
  SignerError,
  createProvider,
  localSigner,
} from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { samplesOf } from "../support/scrape.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const issuer = "https://op.example";
const signer = await localSigner(ecKey("a"));
const provide = (options: ProviderOptions = {}): Promise<Provider> =>
  createProvider({ issuer, keyset: [{ kid: "a", signer }], ...options });

/** The values of one metric, by its labels. */
function valuesOf({ metrics }: Pick<Provider, "metrics">, name: string): Record<string, number> {
  const all = Object.entries(samplesOf(metrics())).filter(([sample]) => sample.split("{")[0] === name);
  return Object.fromEntries(all.map(([sample, value]) => [sample.slice(name.length), value]));
}

describe("responses", () => {
  test("are counted by document and status code, and their bytes", async () => {
    const provider = await provide();
    const discovery = `${issuer}/.well-known/openid-configuration`;
    const ask = (url: string, init?: RequestInit) => provider.fetch(new Request(url, init)) as Response;
    const set = await ask(provider.jwksUri).text();
    const etag = ask(provider.jwksUri).headers.get("etag") ?? "";
    ask(provider.jwksUri, { headers: { "If-None-Match": etag } });
    ask(provider.jwksUri, { method: "HEAD" });
    const refusal = await ask(provider.jwksUri, { method: "POST" }).text();
    const metadata = await ask(discovery).text();
    const missing = await ask(`${issuer}/forged-path?forged`).text();
    assert.deepEqual(valuesOf(provider, "jwksd_responses_total"), {
      '{document="jwks",code="200"}': 3,
      '{document="jwks",code="304"}': 1,
      '{document="jwks",code="405"}': 1,
      '{document="discovery",code="200"}': 1,
      '{document="discovery",code="304"}': 0,
      '{document="none",code="404"}': 1,
    });
    assert.deepEqual(valuesOf(provider, "jwksd_response_bytes_total"), {
      '{document="jwks"}': 2 * set.length + refusal.length,
      '{document="discovery"}': metadata.length,
      '{document="none"}': missing.length,
    });
    assert.ok(!JSON.stringify(provider.metrics()).includes("forged"));
  });

  test("that another handler gives are not counted", async () => {
    const provider = await provide();
    let passed = 0;
    provider.node({ url: "/other", headers: {} }, {} as never, () => (passed += 1));
    assert.equal(passed, 1);
    assert.ok(!('{document="none",code="404"}' in valuesOf(provider, "jwksd_responses_total")));
  });

  test("the rotation mode", async () => {
    let isRotating = false;
    const provider = await provide({ jwksRotationActive: () => isRotating });
    assert.deepEqual(valuesOf(provider, "jwksd_rotation_mode"), { "": 0 });
    isRotating = true;
    assert.deepEqual(valuesOf(provider, "jwksd_rotation_mode"), { "": 1 });
  });
});

describe("signatures", () => {
  const claims = [{ sub: "u" }, { lifetimeSeconds: 60 }] as const;
  const total = "jwksd_signatures_total";

  test("are counted by key and result, and timed", async () => {
    const clock = simulatedClock();
    const failures = new Map<string, SignerError>();
    let takesMs = 30;
    const external = {
      publicKey: signer.publicKey,
      async sign(...args: Parameters<typeof signer.sign>) {
        await new Promise<void>((resolve) => clock.setTimer(resolve, takesMs));
        const failure = failures.get("a");
        if (failure !== undefined) throw failure;
        return signer.sign(...args);
      },
    };
    const events: ProviderEvent[] = [];
    const provider = await provide({
      keyset: [{ kid: "a", signer: external }],
      clock,
      signerLimits: { maxConcurrent: 1 },
      onEvent: (event) => events.push(event),
    });
    const signing = [provider.sign(...claims), provider.sign(...claims)];
    await settled();
    assert.deepEqual(valuesOf(provider, "jwksd_signatures_queued"), { '{kid="a"}': 1 });
    await clock.advance(30);
    await clock.advance(30);
    await Promise.all(signing);
    assert.deepEqual(valuesOf(provider, "jwksd_signatures_queued"), { '{kid="a"}': 0 });

    const failure = new SignerError("ERR_SIGNER_THROTTLED", "later");
    failures.set("a", failure);
    takesMs = 2_000;
    const refused = assert.rejects(provider.sign(...claims), failure);
    await settled();
    await clock.advance(2_000);
    await refused;
    assert.deepEqual(valuesOf(provider, total), {
      '{kid="a",result="ok"}': 2,
      '{kid="a",result="ERR_SIGNER_THROTTLED"}': 1,
    });
    assert.deepEqual(events, [{ type: "signature-failed", kid: "a", error: failure }]);

    const name = "jwksd_signature_duration_seconds";
    const bucket = (le: string): number | undefined => valuesOf(provider, `${name}_bucket`)[`{le="${le}",kid="a"}`];
    assert.deepEqual(["0.025", "0.05", "0.1", "1", "2.5", "+Inf"].map(bucket), [0, 1, 2, 2, 2, 2]);
    assert.deepEqual(valuesOf(provider, `${name}_count`), { '{kid="a"}': 2 });
    assert.ok(Math.abs((valuesOf(provider, `${name}_sum`)['{kid="a"}'] ?? 0) - 0.09) < 1e-9);
  });

  test("of keys that are gone are forgotten, and those of one that comes back count again", async () => {
    const provider = await provide();
    const other = await localSigner(ecKey("b"));
    await provider.sign(...claims);
    await provider.update({ keyset: [{ kid: "b", signer: other }] });
    await provider.sign(...claims);
    assert.deepEqual(valuesOf(provider, total), { '{kid="b",result="ok"}': 1 });
    await provider.update({ keyset: [{ kid: "a", signer }] });
    await provider.sign(...claims);
    assert.deepEqual(valuesOf(provider, total), { '{kid="a",result="ok"}': 1 });
  });
});

describe("events of a provider", () => {
  test("an update, and one that is refused", async () => {
    const events: ProviderEvent[] = [];
    const provider = await provide({ onEvent: (event) => events.push(event) });
    await provider.update({ keyset: [{ kid: "b", signer }] });
    await assert.rejects(provider.update({ keyset: [] }), { code: "ERR_KEYSET_EMPTY" });
    await settled();
    const [updated, refused] = events;
    assert.deepEqual(updated, { type: "updated", kids: ["b"] });
    assert.equal(refused?.type === "refused" && refused.error.code, "ERR_KEYSET_EMPTY");
    assert.equal(events.length, 2);
  });
});
