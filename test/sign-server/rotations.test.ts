// Tokens of a sign socket while keys change, in simulated time.
import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { test } from "node:test";
import { createVerifier } from "fast-jwt";
import { type JSONWebKeySet, createLocalJWKSet, decodeProtectedHeader, jwtVerify } from "jose";
import jsonwebtoken from "jsonwebtoken";
import type { Clock } from "../../src/base/clock.ts";
import { verify } from "../../src/library/token/verify.ts";
import { status as grpcStatus } from "../../src/service/kubernetes/grpc.ts";
import { bytesField } from "../../src/service/kubernetes/protobuf.ts";
import { type Replica, World, issuer } from "../manager/world.ts";
import { hour, second } from "../rotation/key-records.ts";
import { callGrpc, frame, openSession } from "../support/grpc.ts";
import { askSocket, openSocket, requestText, signText } from "../support/sign-socket.ts";
import { soak } from "../support/soak.ts";
import { serveTokens } from "./serving.ts";

const ask = signText({ claims: { sub: "a", aud: "a" }, lifetimeSeconds: 3600 });

test("a stale server refuses, says when to try again, and signs when the store is back", async (t) => {
  const world = new World();
  const line = world.store.line();
  const replica = await world.start({ store: line, policy: { maxStaleSeconds: 3600 } });
  const { path, kubernetes } = await serveTokens(t, world, replica);
  const session = openSession(t, kubernetes);
  const signForKubernetes = async (): Promise<unknown> => {
    const now = Math.floor(world.clock.now() / 1000);
    const claims = { iss: issuer, sub: "system:serviceaccount:a:b", aud: ["a"], iat: now, exp: now + 60 };
    const payload = Buffer.from(JSON.stringify(claims)).toString("base64url");
    return (await callGrpc(session, "/v1.ExternalJWTSigner/Sign", frame(bytesField(1, payload)))).grpc;
  };
  assert.deepEqual([(await askSocket(path, ask)).status, await signForKubernetes()], [200, "0"]);
  line.isGone = true;
  await world.pass(2 * hour);
  for (const text of [ask, requestText("GET", "/readyz")]) {
    const { status, headers, body } = await askSocket(path, text);
    const { code, retryable } = JSON.parse(body) as { code: string; retryable: boolean };
    assert.deepEqual([status, headers["retry-after"], code, retryable], [503, "1", "ERR_SIGNER_STALE", true]);
  }
  assert.equal(await signForKubernetes(), String(grpcStatus.unavailable));
  assert.equal((await askSocket(path, requestText("GET", "/livez"))).status, 200);
  line.isGone = false;
  await world.pass(60 * second);
  assert.equal((await askSocket(path, ask)).status, 200);
  await world.stop(replica);
  assert.equal((await askSocket(path, ask)).status, 503);
});

const rotations = soak(20, 2);
const stepSeconds = 1_500;

test(`${rotations} rotations: caches that never ask again for a kid verify each pipelined token, to its end`, async (t) => {
  const world = new World();
  // As often as can be, with as little time for each step as the policy allows.
  const policy = { rotateEveryDays: 40_500 / 86_400, announceForSeconds: 18_300, maxStaleSeconds: 3_600 };
  const replica = await world.start({ policy });
  const client = await openSocket((await serveTokens(t, world, replica)).path);
  t.after(() => client.close());
  const kids = new Set<string>();
  let tokens: string[] = [];
  let copy = await copyOf(replica, world);
  while (kids.size <= rotations) {
    if (world.clock.now() >= copy.until) copy = await copyOf(replica, world);
    client.socket.write(ask.repeat(2));
    // The keys change while requests are under way.
    await world.pass(stepSeconds * second);
    for (let reply = 0; reply < 2; reply += 1) {
      const { status, body } = await client.reply();
      assert.equal(status, 200, body);
      tokens.push(body);
      kids.add(decodeProtectedHeader(body).kid ?? "");
    }
    if (world.clock.now() >= copy.until) copy = await copyOf(replica, world);
    for (const token of tokens) await verifyAt(world.clock, token, copy.jwks);
    // They were signed at the beginning of the step, and live for two.
    tokens = tokens.slice(-2);
  }
  t.diagnostic(`${kids.size} keys`);
  await world.stop(replica);
});

/** By the libraries of the matrix that can be told the time. */
async function verifyAt(clock: Clock, token: string, jwks: JSONWebKeySet): Promise<void> {
  const keys = createLocalJWKSet(jwks);
  await jwtVerify(token, keys, { issuer, currentDate: new Date(clock.now()) });
  await verify(token, { issuer, keys, audience: "a", algorithms: ["ES256"], clock });
  const { kid } = decodeProtectedHeader(token);
  const key = createPublicKey({ key: { ...jwks.keys.find((jwk) => jwk.kid === kid) }, format: "jwk" });
  jsonwebtoken.verify(token, key, { issuer, clockTimestamp: clock.now() / 1000 });
  const pem = key.export({ type: "spki", format: "pem" });
  createVerifier({ key: pem, allowedIss: issuer, clockTimestamp: clock.now() })(token);
}

/** What a cache keeps, for as long as it may. */
async function copyOf({ provider }: Replica, { clock }: World) {
  const response = provider.fetch(new Request(`${issuer}/jwks`));
  const [maxAge = 0, stale = 0] = [
    ...(response.headers.get("cache-control") ?? "").matchAll(/(?:max-age|stale-while-revalidate)=(\d+)/g),
  ].map(([, seconds]) => Number(seconds));
  const jwks = (await response.json()) as JSONWebKeySet;
  return { jwks, until: clock.now() + (maxAge + stale) * second };
}
