import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type Attributes,
  type Span,
  type SpanOptions,
  type SpanStatus,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { SignerError, RotationError, StoreError } from "../../src/base/errors.ts";
import { localSigner } from "../../src/keys/signer/local-signer.ts";
import type { SignInput } from "../../src/keys/signer/signer.ts";
import { createProvider } from "../../src/provider/create-provider.ts";
import type { StoreDocument } from "../../src/rotation/custody/document.ts";
import type { Processes } from "../../src/rotation/custody/presence-records.ts";
import { createHealth } from "../../src/rotation/manager/health.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { liveRecords } from "../../src/rotation/rules/key-records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { createProcessList } from "../../src/service/keys/replica-list.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { day, hour, second } from "../rules/key-records.ts";
import { ecKey } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";
import { valuesOf } from "../support/scrape.ts";
import { settled, simulatedClock } from "../support/simulated.ts";
import { World } from "./world.ts";

describe("a manager's metrics", () => {
  test("report each key, when it entered each state, and when the next step is due", async () => {
    const world = new World();
    const replica = await world.start();
    const t0 = world.clock.now() / 1000;
    const [first = ""] = replica.manager.records.map(({ kid }) => kid);
    const key = `kid="${first}"`;
    assert.deepEqual(valuesOf(replica.manager, "jwksd_key_info"), {
      [`{${key},use="sig",alg="ES256",state="active",private_half="store"}`]: 1,
    });
    assert.deepEqual(valuesOf(replica.manager, "jwksd_step_timestamp_seconds"), {
      [`{${key},use="sig",step="announce"}`]: t0 + (3 * day) / 1000,
    });

    await world.pass(3 * day + second);
    const next = replica.manager.records.at(-1)?.kid;
    const announcedAt = (liveRecords(replica.manager.records).at(-1)?.announcedAt ?? 0) / 1000;
    assert.deepEqual(valuesOf(replica.manager, "jwksd_step_timestamp_seconds"), {
      [`{kid="${next}",use="sig",step="activate"}`]: announcedAt + day / 1000,
    });
    await world.pass(day + 31 * second);
    assert.deepEqual(Object.keys(valuesOf(replica.manager, "jwksd_step_timestamp_seconds")), [
      `{kid="${next}",use="sig",step="announce"}`,
      `{${key},use="sig",step="remove"}`,
    ]);
    const retired = valuesOf(replica.manager, "jwksd_key_timestamp_seconds")[`{${key},event="retired"}`];
    assert.equal(retired, announcedAt + day / 1000);
  });

  test("report a step as blocked, along with its start time, while it waits for a target", async () => {
    const world = new World();
    const replica = await world.start();
    await world.change(() => ({ targets: [{ name: "s3://bucket", revision: 1, at: 1 }] }));
    await world.until(replica.manager.rotate());
    await world.idle();
    const blocked = Object.entries(valuesOf(replica.manager, "jwksd_step_blocked_timestamp_seconds"));
    const record = liveRecords(replica.manager.records).at(-1);
    assert.deepEqual(blocked, [
      [`{kid="${record?.kid}",use="sig",step="activate"}`, (record?.announcedAt ?? 0) / 1000],
    ]);
    assert.deepEqual(valuesOf(replica.manager, "jwksd_step_timestamp_seconds"), {});
    await world.change(() => ({ targets: [] }));
    await world.idle();
    assert.deepEqual(valuesOf(replica.manager, "jwksd_step_blocked_timestamp_seconds"), {});
    await world.stop(replica);
  });

  test("count store calls by result, report an outage while it lasts, and report both revisions", async () => {
    const world = new World();
    const replica = await world.start({ initialPolicy: { maxStaleSeconds: 3600 } });
    const read = (name: string): number | undefined => valuesOf(replica.manager, name)[""];
    assert.deepEqual(
      ["published", "stored"]
        .map((name) => read(`jwksd_revision_${name}`))
        .concat(read("jwksd_ready"), read("jwksd_seconds_until_stale")),
      [1, 1, 1, 3564],
    );
    const before = read("jwksd_store_success_timestamp_seconds");
    world.store.isGone = true;
    await world.pass(2 * hour);
    assert.deepEqual([read("jwksd_ready"), read("jwksd_seconds_until_stale")], [0, 0]);
    assert.deepEqual(valuesOf(replica.manager, "jwksd_failure"), { '{code="ERR_STORE_UNAVAILABLE"}': 1 });
    const calls = valuesOf(replica.manager, "jwksd_store_calls_total");
    assert.equal(calls['{call="write",result="ok"}'], 1);
    assert.ok((calls['{call="presence",result="ERR_STORE_UNAVAILABLE"}'] ?? 0) > 0);
    const attempt = read("jwksd_store_attempt_timestamp_seconds") ?? 0;
    assert.equal(read("jwksd_store_success_timestamp_seconds"), before);
    assert.ok(attempt > world.clock.now() / 1000 - 31, "an attempt every 30 s");

    world.store.isGone = false;
    await world.pass(60 * second);
    assert.deepEqual(valuesOf(replica.manager, "jwksd_failure"), {});
    assert.equal(read("jwksd_ready"), 1);
    assert.equal(read("jwksd_store_success_timestamp_seconds"), read("jwksd_store_attempt_timestamp_seconds"));
  });

  test("report the next key as unusable until it has produced a signature", async () => {
    const world = new World();
    const own = await localSigner(ecKey("a"));
    let failure: SignerError | undefined;
    const external = {
      ...own,
      uri: "pkcs11:object=a",
      async sign(...args: Parameters<typeof own.sign>) {
        if (failure !== undefined) throw failure;
        return own.sign(...args);
      },
      close: async () => {},
    };
    const replica = await world.start();
    const outside = await world.start({
      openSigner: async () => external,
      createSigner: async () => external,
    });
    await world.stop(replica);
    await world.pass(3 * day + second);
    const { kid } = outside.manager.records.at(-1) ?? {};
    assert.equal(
      Object.keys(valuesOf(outside.manager, "jwksd_key_info")).some((labels) =>
        labels.includes('private_half="external"'),
      ),
      true,
    );
    failure = new SignerError("ERR_SIGNER_BAD_SIGNATURE", "wrong");
    await world.pass(day + second);
    assert.deepEqual(valuesOf(outside.manager, "jwksd_key_unusable"), {
      [`{kid="${kid}",code="ERR_SIGNER_BAD_SIGNATURE"}`]: 1,
    });
    failure = undefined;
    await world.pass(2 * 60 * second);
    assert.deepEqual(valuesOf(outside.manager, "jwksd_key_unusable"), {});
  });
});

const unavailable = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");

function healthOf() {
  const clock = simulatedClock();
  return { clock, health: createHealth({ clock, signal: new AbortController().signal }) };
}

describe("store health", () => {
  test("includes the revision and the time when this process first read it", async () => {
    const { clock, health } = healthOf();
    health.onRevision(1);
    const since = clock.now();
    await clock.advance(1_000);
    health.onRevision(1);
    health.onCall("read");
    const { revision, revisionSince, lastSuccessAt, lastError } = health.current.store;
    assert.deepEqual([revision, revisionSince, lastSuccessAt, lastError], [1, since, clock.now(), undefined]);
    health.onRevision(2);
    assert.equal(health.current.store.revisionSince, clock.now());
  });

  test("includes the error that an outage causes", () => {
    const { clock, health } = healthOf();
    health.onCall("read", unavailable);
    const { lastAttemptAt, lastSuccessAt, lastError } = health.current.store;
    assert.deepEqual([lastAttemptAt, lastSuccessAt], [clock.now(), undefined]);
    assert.deepEqual(lastError, { at: clock.now(), code: "ERR_STORE_UNAVAILABLE", message: "no route to host" });
  });

  test("counts a refusal as a success", () => {
    const { clock, health } = healthOf();
    health.onCall("write", new StoreError("ERR_STORE_CONFLICT", "another commit came first"));
    assert.deepEqual([health.current.store.lastSuccessAt, health.current.store.lastError], [clock.now(), undefined]);
  });

  test("ignores a call that ended because the manager was closed", () => {
    const { health } = healthOf();
    health.onCall("read", new StoreError("ERR_CLOSED", "closed"));
    assert.deepEqual(health.current.store, {});
  });
});

test("gives the time of the first of several failures, and reports staleness separately", async () => {
  const { clock, health } = healthOf();
  const at = clock.now();
  const failed = { type: "failed", retryInMs: 1, staleAt: 1 } as const;
  health.report({ ...failed, error: unavailable });
  await clock.advance(1_000);
  health.report({ ...failed, error: new RotationError("ERR_UPDATE", "not taken") });
  health.report({ type: "stale", error: new SignerError("ERR_SIGNER_STALE", "the clock") });
  assert.deepEqual(health.current.failure, { at, code: "ERR_UPDATE", message: "not taken" });
  health.report({ type: "recovered" });
  assert.deepEqual([health.current.failure, health.current.stale?.code], [undefined, "ERR_SIGNER_STALE"]);
  health.report({ type: "fresh" });
  assert.equal(health.current.stale, undefined);
});

const none: Processes = { processes: [], unread: 0 };

function processList(processes: () => Promise<Processes>) {
  const clock = simulatedClock();
  const document = { revision: 1 };
  let calls = 0;
  const manager = {
    document: document as StoreDocument,
    processes: () => {
      calls += 1;
      return processes();
    },
  };
  const list = createProcessList(manager, clock);
  return { clock, document, refresh: list, calls: () => calls };
}

describe("the list of processes", () => {
  test("is read at most once every two seconds, and again after a change", async () => {
    const { clock, document, refresh, calls } = processList(async () => none);
    await Promise.all([refresh(), refresh()]);
    await refresh();
    assert.equal(calls(), 1);
    await clock.advance(2_000);
    await refresh();
    assert.equal(calls(), 2);
    document.revision += 1;
    await refresh();
    assert.equal(calls(), 3);
  });

  test("does not delay metrics if the store is slow, and has only one read in flight", async () => {
    const answers: (() => void)[] = [];
    const { clock, refresh, calls } = processList(() => new Promise((resolve) => answers.push(() => resolve(none))));
    for (let call = 0; call < 2; call += 1) {
      const refreshing = refresh();
      await clock.advance(250);
      await refreshing;
    }
    assert.equal(calls(), 1);
    answers[0]?.();
    await settled();
    await clock.advance(2_000);
    const again = refresh();
    await clock.advance(250);
    await again;
    assert.equal(calls(), 2);
  });

  test("is read again after an outage", async () => {
    const { clock, refresh, calls } = processList(() => Promise.reject(unavailable));
    await refresh();
    await clock.advance(2_000);
    await refresh();
    assert.equal(calls(), 2);
  });
});

interface Ended {
  readonly name: string;
  readonly attributes: Attributes | undefined;
  readonly status: SpanStatus | undefined;
}

/** Registers a tracer, as an SDK does, that records spans that have ended. */
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

test("fetches, store calls and external signatures are recorded as spans if there is a tracer", async (t) => {
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
