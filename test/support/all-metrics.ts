import { SignerError, StoreError } from "../../src/base/errors.ts";
import { type Metric, sumMetrics } from "../../src/base/metrics.ts";
import { localSigner } from "../../src/keys/signer/local-signer.ts";
import { createProvider } from "../../src/provider/create-provider.ts";
import { createIssuers } from "../../src/rotation/issuers/issuers.ts";
import { createHealth } from "../../src/rotation/manager/health.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { serviceMetrics } from "../../src/service/admin/service-metrics.ts";
import { statusOf } from "../../src/service/admin/status.ts";
import { loggerOf } from "../../src/service/config/logger.ts";
import { createDecisionLog } from "../../src/service/guard/decision-log.ts";
import { createKeySetMetrics } from "../../src/verify/relying-party/metrics.ts";
import { day, hour, record, start, waiting } from "../rules/key-records.ts";
import { keySource } from "./key-source.ts";
import { ecKey } from "./keys.ts";
import { newWrappingKey } from "./managed.ts";
import { simulatedClock } from "./simulated.ts";
import { known, presenceRecord, storeDocument } from "./store-view.ts";

const outage = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");

/** Returns every jwksd metric, each with at least one value. */
export async function allMetrics(): Promise<readonly Metric[]> {
  const metrics = sumMetrics([
    ...serviceParts(),
    managerPart(),
    await providerPart(),
    keySetPart(),
    guardPart(),
    await issuersPart(),
  ]);
  const empty = metrics.filter(({ values }) => values.length === 0).map(({ name }) => name);
  if (empty.length > 0) throw new Error(`no value of ${empty.join(", ")}`);
  return metrics;
}

const records = [
  record("old", "retiring", { announcedAt: start - 200 * day, activatedAt: start - 199 * day, retiredAt: start }),
  record("now", "active", { announcedAt: start - 100 * day, activatedAt: start - 99 * day }),
  record("code", "active", { use: "enc", announcedAt: start - 100 * day, activatedAt: start - 99 * day }),
  waiting(record("next", "announced", { announcedAt: start - hour, stateRevision: 5 })),
];
const document = storeDocument(records, { targets: [{ name: "web", revision: 4, at: start - 2 * hour }] });

function guardPart(): readonly Metric[] {
  const decisions = createDecisionLog(
    loggerOf(() => {}),
    simulatedClock(),
  );
  decisions.record({ status: 200, reason: "token" });
  return decisions.metrics(false);
}

function managerPart(): readonly Metric[] {
  const health = createHealth({ clock: simulatedClock(), signal: new AbortController().signal });
  health.onCall("read");
  health.report({ type: "failed", error: outage, retryInMs: 1, staleAt: start + hour });
  health.report({ type: "activation-blocked", kid: "next", error: new SignerError("ERR_SIGNER_UNAVAILABLE", "off") });
  return health.metrics({ document, isReady: true, staleInMs: hour });
}

function serviceParts(): readonly (readonly Metric[])[] {
  const service = known({
    published: [
      { jwk: { kid: "file", use: "enc", alg: "RSA-OAEP-256", kty: "RSA", n: "", e: "" }, notAfter: Infinity },
    ],
  });
  const failure = { at: start, code: outage.code, message: outage.message };
  const store = { lastAttemptAt: start, lastSuccessAt: start, revision: 5 };
  const health = { failure, activationBlocked: {}, unavailable: {}, destroyFailed: {}, store };
  const processes = [presenceRecord("self")];
  const manager = { id: "self", document, policyGiven: {}, processes, unread: 0, clockAheadMs: 0, health };
  const managed = { ...service, manager };
  const kept = { ...service, withoutStore: { savedAt: start, outage: failure } };
  return [managed, kept].map((known) => serviceMetrics(statusOf(known), start, false));
}

async function providerPart(): Promise<readonly Metric[]> {
  const keyset = [{ kid: "now", signer: await localSigner(ecKey("now")) }];
  const provider = await createProvider({ keys: keySource("https://op.example", keyset, { endOf: () => "removed" }) });
  await provider.sign({ sub: "u" }, { lifetimeSeconds: 60 });
  await provider.verify("eyJhbGciOiJFUzI1NiIsImtpZCI6Im9sZCJ9.e30.AA", { audience: "a" }).catch(() => {});
  return provider.metrics();
}

function keySetPart(): readonly Metric[] {
  const metrics = createKeySetMetrics("https://op.example");
  metrics.record({ type: "refreshed", status: 200, bytes: 1 });
  return metrics.metrics(start);
}

async function issuersPart(): Promise<readonly Metric[]> {
  const broken: Register = { ...memoryStore(), read: () => Promise.reject(outage) };
  const issuer = "https://op.example/a";
  const store = (): Register => ({ ...broken, due: async (_, after) => (after ? [] : [{ issuer, due: 0, key: "a" }]) });
  const options = { issuer: "https://op.example/*", store, wrappingKeys: newWrappingKey() };
  const issuers = await createIssuers(options);
  await issuers.get(issuer).catch(() => {});
  await issuers.runAllDueSteps();
  return issuers.metrics();
}
