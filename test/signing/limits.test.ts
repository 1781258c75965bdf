import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setupOf } from "../../src/provider/create-provider.ts";
import { provide } from "../../src/provider/provider.ts";
import { publishedKeys } from "../../src/rotation/rules/key-records.ts";
import { status as grpcStatus } from "../../src/service/signing/grpc.ts";
import { signHandler } from "../../src/service/signing/handler.ts";
import { createKubernetesSigner } from "../../src/service/signing/kubernetes.ts";
import { bytesField } from "../../src/service/signing/protobuf.ts";
import { type SignCounts, createAudit } from "../../src/service/signing/signature-counts.ts";
import { type Replica, World, issuer } from "../manager/world.ts";
import { hour, second } from "../rules/key-records.ts";
import { callGrpc, frame, openSession } from "../support/grpc.ts";
import { temporaryFolder } from "../support/service.ts";
import { askSocket, requestText, signText } from "../support/sign-socket.ts";
import { simulatedClock } from "../support/simulated.ts";

const busy = { code: "ERR_SIGNER_BUSY", retryable: true };

test("allows at most 64 concurrent signatures per connection and 1,024 in total; each one that ends frees a slot", async () => {
  const { sign: limited } = createAudit(simulatedClock(), () => {});
  const connections = Array.from({ length: 17 }, () => ({}));
  const [greedy = {}, ...others] = connections;
  const end = Promise.withResolvers<void>();
  const sign = (connection: object): Promise<void> => limited(connection, async () => {});
  const fill = (connection: object): Promise<void>[] =>
    Array.from({ length: 64 }, () => limited(connection, () => end.promise));
  const inProgress = fill(greedy);
  await assert.rejects(sign(greedy), busy);
  await sign(others[0] ?? {});
  for (const other of others.slice(0, 15)) inProgress.push(...fill(other));
  await assert.rejects(sign(others[15] ?? {}), busy);
  end.resolve();
  await Promise.all(inProgress);
  for (const connection of connections) await sign(connection);
});

test("a failed signature frees its slot too", async () => {
  const { sign: limited } = createAudit(simulatedClock(), () => {});
  const failure = new Error("no signature");
  const failing = Array.from({ length: 64 }, () => limited(failure, () => Promise.reject(failure)));
  for (const { status } of await Promise.allSettled(failing)) assert.equal(status, "rejected");
  await limited(failure, async () => {});
});

test("a request that outlives its socket leaves no timer that would keep the process running", async () => {
  const clock = simulatedClock();
  const reports: SignCounts[] = [];
  const audit = createAudit(clock, (counts) => reports.push(counts));
  const { sign: limited } = audit;
  const cut = Promise.withResolvers<void>();
  const inProgress = limited({}, () => cut.promise);
  await limited({}, async () => {});
  audit.end();
  cut.resolve();
  await inProgress;
  assert.deepEqual([clock.timers, reports], [0, [{ signed: 1, refused: {} }]]);
});

// The sign socket of a stale process, in simulated time.

const ask = signText({ claims: { sub: "a", aud: "a" }, lifetimeSeconds: 3600 });

test("a stale process refuses to sign, reports when to retry, and signs again when the store is back", async (t) => {
  const world = new World();
  const connection = world.store.connection();
  const replica = await world.start({ store: connection, initialPolicy: { maxStaleSeconds: 3600 } });
  const { path, kubernetes } = await serveTokens(t, world, replica);
  const session = openSession(t, kubernetes);
  const signForKubernetes = async (): Promise<unknown> => {
    const now = Math.floor(world.clock.now() / 1000);
    const claims = { iss: issuer, sub: "system:serviceaccount:a:b", aud: ["a"], iat: now, exp: now + 60 };
    const payload = Buffer.from(JSON.stringify(claims)).toString("base64url");
    return (await callGrpc(session, "/v1.ExternalJWTSigner/Sign", frame(bytesField(1, payload)))).grpc;
  };
  assert.deepEqual([(await askSocket(path, ask)).status, await signForKubernetes()], [200, "0"]);
  connection.isGone = true;
  await world.pass(2 * hour);
  for (const text of [ask, requestText("GET", "/readyz")]) {
    const { status, headers, body } = await askSocket(path, text);
    const { code, retryable } = JSON.parse(body) as { code: string; retryable: boolean };
    assert.deepEqual([status, headers["retry-after"], code, retryable], [503, "1", "ERR_SIGNER_STALE", true]);
  }
  assert.equal(await signForKubernetes(), String(grpcStatus.unavailable));
  assert.equal((await askSocket(path, requestText("GET", "/livez"))).status, 200);
  connection.isGone = false;
  await world.pass(60 * second);
  assert.equal((await askSocket(path, ask)).status, 200);
  await world.until(replica.manager.decommission());
  for (const text of [ask, requestText("GET", "/readyz")]) {
    const { status, headers, body } = await askSocket(path, text);
    const { code, retryable } = JSON.parse(body) as { code: string; retryable: boolean };
    assert.deepEqual(
      [status, headers["retry-after"], code, retryable],
      [410, undefined, "ERR_SIGNER_DECOMMISSIONED", false],
    );
  }
  await world.stop(replica);
  assert.equal((await askSocket(path, ask)).status, 503);
});

/**
 * Serves a replica's tokens in simulated time, as `jwksd serve` does: a key is published before it signs. Returns the paths of an HTTP socket
 * and of a socket for Kubernetes.
 */
async function serveTokens(
  t: TestContext,
  world: World,
  { manager }: Replica,
): Promise<{ path: string; kubernetes: string }> {
  const { clock } = world;
  const provider = await provide(setupOf([{ keys: manager, clock }]));
  await world.until(provider.follow());
  const signing = {
    ...provider,
    signingRecords: () => publishedKeys(manager.records, "sig"),
    source: { takenAt: clock.now(), maxTokenLifetimeSeconds: manager.maxTokenLifetimeSeconds },
  };
  const audit = createAudit(clock, () => {});
  const sign = { signing, policy: {}, audit };
  const server = createServer(signHandler(sign));
  const signer = createKubernetesSigner(sign, { issuer, formerKeys: [], clock });
  const folder = await temporaryFolder(t);
  const [path, kubernetes] = [join(folder, "s"), join(folder, "k")];
  server.listen(path);
  signer.server.listen(kubernetes);
  await once(server, "listening");
  t.after(async () => {
    await signer.stop();
    server.closeAllConnections();
    server.close();
    audit.end();
  });
  return { path, kubernetes };
}
