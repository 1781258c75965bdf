import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Attributes,
  type Span,
  type SpanOptions,
  type SpanStatus,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { StoreError } from "../../src/base/errors.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { createProvider } from "../../src/library/provider/provider.ts";
import { createRemoteKeySet } from "../../src/library/relying-party/index.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import type { SignInput } from "../../src/keys/signer/signer.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { ecKey } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";

interface Ended {
  readonly name: string;
  readonly attributes: Attributes | undefined;
  readonly status: SpanStatus | undefined;
}

/** A tracer, as an SDK registers one, that keeps the spans that have ended. */
function record(): Ended[] {
  const ended: Ended[] = [];
  function startActiveSpan(name: string, ...rest: readonly unknown[]): unknown {
    const [{ attributes }, work] = [rest[0] as SpanOptions, rest.at(-1) as (span: Span) => unknown];
    let status: SpanStatus | undefined;
    const span = {
      setStatus: (next: SpanStatus) => (status = next),
      end: () => ended.push({ name, attributes, status }),
    };
    return work(span as unknown as Span);
  }
  const tracer = { startActiveSpan } as Partial<Tracer> as Tracer;
  assert.ok(trace.setGlobalTracerProvider({ getTracer: () => tracer }));
  return ended;
}

const write = (): Promise<never> => Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "secret message"));
const issuer = "https://op.example";

test("fetches, calls of the store and signatures of external signers are spans, and where nobody traces there are none", async (t) => {
  const signer = await localSigner(ecKey("a"));
  const keyset = [
    { kid: "a", signer: { publicKey: signer.publicKey, sign: (input: SignInput) => signer.sign(input) } },
  ];
  const provider = await createProvider({ issuer, keyset });
  const claims = [{ sub: "secret-subject" }, { lifetimeSeconds: 60 }] as const;
  await provider.sign(...claims);

  const ended = record();
  t.after(() => trace.disable());
  await provider.sign(...claims);
  const keys = createRemoteKeySet({
    jwksUri: `${issuer}/jwks?secret=1`,
    fetch: async () => new Response(null, { status: 500 }),
  });
  await assert.rejects(keys.refresh(), { code: "ERR_FETCH_STATUS" });
  const store = { ...memoryStore(), write };
  const manager = await createKeyManager({ issuer, store, wrappingKeys: [newWrappingKey()] }).catch(() => {});
  await manager?.close();
  trace.disable();
  await provider.sign(...claims);

  const [signed, fetched, ...calls] = ended;
  assert.deepEqual(signed, { name: "jwksd sign", attributes: { "jwksd.key": 'kid "a"' }, status: undefined });
  assert.equal(fetched?.name, "jwksd fetch");
  assert.deepEqual(fetched.status, { code: SpanStatusCode.ERROR, message: "ERR_FETCH_STATUS" });
  assert.deepEqual(
    calls.slice(0, 2).map(({ name, status }) => [name, status]),
    [
      ["jwksd store presence", undefined],
      ["jwksd store read", undefined],
    ],
  );
  const written = calls.find(({ name }) => name === "jwksd store write");
  assert.deepEqual(written?.status, { code: SpanStatusCode.ERROR, message: "ERR_STORE_UNAVAILABLE" });
  assert.ok(!/secret/.test(JSON.stringify(ended)), JSON.stringify(ended));
});
