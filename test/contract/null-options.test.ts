// One rule for `null` in options: not given. The type of a row names every option that may be left out, and takes none without `null`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeProtectedHeader } from "jose";
import { systemClock } from "../../src/base/clock.ts";
import { type ObserveOptions, type WatchOptions, observe, watch } from "../../src/doctor/node/index.ts";
import {
  type ClientAssertionOptions,
  type ClientVerifierOptions,
  type ProviderOptions,
  type ReplayStoreOptions,
  type SignOptions,
  type Signer,
  type SignerLimits,
  type VerifyOptions,
  createClientAssertion,
  createClientVerifier,
  createProvider,
  localSigner,
  memoryReplayStore,
  verify,
} from "../../src/index.ts";
import { type BackendOptions, openSigner } from "../../src/keys/open.ts";
import { awsKmsBackend } from "../../src/keys/kms/aws-kms.ts";
import { azureKeyVaultBackend } from "../../src/keys/kms/azure-key-vault.ts";
import { googleKmsBackend } from "../../src/keys/kms/google-kms.ts";
import { vaultTransitBackend } from "../../src/keys/kms/vault-transit.ts";
import { pkcs11Backend } from "../../src/keys/pkcs11/backend.ts";
import { type BearerOptions, createBearer } from "../../src/verify/bearer/index.ts";
import { type GuardedFetchOptions, createGuardedFetch } from "../../src/node/index.ts";
import { type RemoteKeySetOptions, createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { type SignClientOptions, createSignClient } from "../../src/sign/client/index.ts";
import { type IssuersOptions, createIssuers } from "../../src/rotation/issuers/index.ts";
import {
  type ForceOptions,
  type KeyManagerOptions,
  type RotateOptions,
  type RotationPolicyOptions,
  createKeyManager,
} from "../../src/rotation/manager/index.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { liveRecords } from "../../src/rotation/rules/records.ts";
import { type MemoryStoreOptions, memoryStore } from "../../src/rotation/store/index.ts";
import { ecKey } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";

const issuer = "https://op.example";
const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];
const provider = await createProvider({ issuer, keyset });
const claims = { sub: "a", aud: "b" };
const token = await provider.sign(claims, { lifetimeSeconds: 60 });
const jwkSet = await (await provider.fetch(new Request(provider.jwksUri))).text();
const keys = createRemoteKeySet({ jwksUri: provider.jwksUri, fetch: async () => new Response(jwkSet) });

/** What the provider serves. */
const serve = async (url: string): Promise<Response> => provider.fetch(new Request(url));

type Nulls<Options> = { readonly [Name in keyof Options as undefined extends Options[Name] ? Name : never]-?: null };

/** A function, called with `null` for each option, and without them: what is seen is the same. */
function row<Options>(
  name: string,
  required: Options,
  nulls: Nulls<Options> & Partial<Options>,
  see: (options: Options) => Promise<unknown>,
): void {
  test(`${name}: null is not given`, async () => {
    const expected = await see(required);
    for (const given of Object.keys(nulls)) {
      const one = required[given as keyof Options] === undefined ? { [given]: null } : {};
      assert.deepEqual(await see({ ...required, ...one }), expected, given);
    }
    assert.deepEqual(await see({ ...required, ...nulls, ...required }), expected);
  });
}

row<ProviderOptions>(
  "createProvider",
  { issuer, keyset },
  {
    issuer: null,
    mountPrefix: null,
    endpoints: null,
    keys: null,
    keyset: null,
    encryptionKeyset: null,
    jwksRotationActive: null,
    discovery: null,
    metadata: null,
    cors: null,
    onWarning: null,
    onEvent: null,
    maxTokenLifetimeSeconds: null,
    permit: null,
    retiredKid: null,
    signerLimits: null,
    clock: null,
  },
  async (options) => {
    const made = await createProvider(options);
    const response = await made.fetch(new Request(made.jwksUri));
    return [made.jwksUri, response.headers.get("cache-control"), await response.text()];
  },
);
row<SignerLimits>(
  "createProvider({ signerLimits })",
  {},
  { maxConcurrent: null, maxQueued: null, timeoutMs: null },
  async (signerLimits) => {
    // No local signer, which has no limits.
    const [{ signer }] = keyset as [(typeof keyset)[0]];
    const signing: Signer = { publicKey: signer.publicKey, sign: async (input) => signer.sign(input) };
    const limited = await createProvider({ issuer, keyset: [{ kid: "a", signer: signing }], signerLimits });
    return decodeProtectedHeader(await limited.sign(claims, { lifetimeSeconds: 60 }));
  },
);
row<SignOptions>(
  "sign",
  { lifetimeSeconds: 60 },
  { lifetimeSeconds: null, typ: null, header: null, signal: null },
  async (options) => decodeProtectedHeader(await provider.sign(claims, options)),
);
row<VerifyOptions>(
  "verify",
  { keys, issuer, audience: "b", algorithms: ["ES256"] },
  { typ: null, clockToleranceSeconds: null, requiredClaims: null, clock: null },
  (options) => verify(token, options),
);
row<RemoteKeySetOptions>(
  "createRemoteKeySet",
  { jwksUri: provider.jwksUri, fetch: async () => new Response(jwkSet) },
  {
    issuer: null,
    jwksUri: null,
    allowInsecure: null,
    fetch: null,
    clock: null,
    timeoutMs: null,
    maxBytes: null,
    minFreshSeconds: null,
    maxFreshSeconds: null,
    outageToleranceSeconds: null,
    maxWaitMs: null,
    onEvent: null,
    state: null,
  },
  async (options) => (await createRemoteKeySet(options)({ alg: "ES256", kid: "a" })).type,
);
row<BearerOptions>(
  "createBearer",
  { issuer, audience: "b", typ: "JWT", keySet: { fetch: serve } },
  {
    typ: null,
    algorithms: null,
    clockToleranceSeconds: null,
    requiredClaims: null,
    scopeClaims: null,
    maxTokenBytes: null,
    token: null,
    requestId: null,
    maxIssuers: null,
    resource: null,
    metadata: null,
    dpop: null,
    baseUrl: null,
    proofMaxAgeSeconds: null,
    replay: null,
    nonceSecret: null,
    certificate: null,
    state: null,
    keySet: null,
    clock: null,
    onEvent: null,
  },
  async (options) => {
    const headers = { authorization: `Bearer ${token}` };
    const checked = await createBearer(options).check(new Request("https://api.example", { headers }));
    return checked instanceof Response ? checked.status : checked.claims;
  },
);
row<ClientVerifierOptions>(
  "createClientVerifier",
  { issuer },
  {
    audiences: null,
    fetch: null,
    maxKeySets: null,
    replay: null,
    maxLifetimeSeconds: null,
    clockToleranceSeconds: null,
    clock: null,
    onEvent: null,
  },
  async (options) => {
    const assertion = await createClientAssertion(provider, { clientId: "c", audience: issuer });
    const client = { clientId: "c", jwks: JSON.parse(jwkSet) as object };
    return (await createClientVerifier(options).clientAssertion(assertion, client as never)).header;
  },
);
row<ClientAssertionOptions>(
  "createClientAssertion",
  { clientId: "c", audience: issuer },
  { lifetimeSeconds: null, signal: null, clock: null },
  async (options) => decodeProtectedHeader(await createClientAssertion(provider, options)),
);
row<ReplayStoreOptions>("memoryReplayStore", {}, { maxEntries: null, clock: null }, async (options) =>
  memoryReplayStore(options)("a".repeat(43), Date.now() + 1000, "c"),
);
row<RotationPolicyOptions>(
  "rotationPolicy",
  {},
  {
    rotateEveryDays: null,
    announceForSeconds: null,
    maxTokenLifetimeSeconds: null,
    clockSkewSeconds: null,
    cacheSlackSeconds: null,
    maxStaleSeconds: null,
  },
  async (options) => rotationPolicy(options),
);
row<IssuersOptions>(
  "createIssuers",
  { issuer: "https://*.example", store: () => memoryStore(), wrappingKeys: newWrappingKey() },
  {
    policy: null,
    metadata: null,
    refreshSeconds: null,
    maxIssuers: null,
    maxBytes: null,
    waitUntil: null,
    onEvent: null,
    clock: null,
  },
  async (options) => (await createIssuers(options)).get("https://op.example"),
);
const manager = (): KeyManagerOptions => ({ issuer, store: memoryStore(), wrappingKeys: [newWrappingKey()] });
row<KeyManagerOptions>(
  "createKeyManager",
  manager(),
  {
    policy: null,
    createSigner: null,
    openSigner: null,
    destroySigner: null,
    signs: null,
    requireStore: null,
    onDemand: null,
    refreshSeconds: null,
    waitUntil: null,
    replicaName: null,
    onEvent: null,
    clock: null,
  },
  async (options) => {
    const made = await createKeyManager({ ...options, ...manager() });
    const follows = await createProvider({ keys: made });
    await follows.sign(claims, { lifetimeSeconds: 60 });
    await made.close();
    return [made.policy, made.records.map(({ state }) => state)];
  },
);
row<RotateOptions>("rotate", {}, { use: null, alg: null, now: null }, async (options) => {
  const made = await createKeyManager(manager());
  const { records } = await made.rotate(options);
  await made.close();
  return liveRecords(records).map(({ use, alg, state }) => [use, alg, state]);
});
row<ForceOptions>("activate", {}, { force: null }, async (options) => {
  const made = await createKeyManager(manager());
  await made.rotate();
  const { kid = "" } = made.records[1] ?? {};
  await assert.rejects(made.activate(kid, options), { code: "ERR_TOO_EARLY" });
  await made.close();
});
row<MemoryStoreOptions>("memoryStore", {}, { clock: null }, (options) => memoryStore(options).read());
row<SignClientOptions>(
  "createSignClient",
  { socket: "/run/none" },
  { socket: null, address: null, cert: null, key: null, ca: null, timeoutMs: null, maxConnections: null },
  (options) =>
    createSignClient(options)
      .sign(claims, { lifetimeSeconds: 60 })
      .catch(({ code }: { code: string }) => code),
);
row<GuardedFetchOptions>("createGuardedFetch", {}, { resolve: null, isAllowed: null, ca: null }, (options) =>
  assert.rejects(async () => createGuardedFetch(options)("https://127.0.0.1", {}), {
    code: "ERR_ADDRESS_FORBIDDEN",
  }),
);
row<BackendOptions>(
  "openSigner",
  {},
  { awsKms: null, azureKeyVault: null, googleKms: null, pkcs11: null, vaultTransit: null },
  async (options) => {
    for (const type of ["aws-kms", "azure-kv", "gcp-kms", "pkcs11", "vault-transit"])
      await assert.rejects(openSigner(`${type}:none`, { ...options, signal: null }), { code: "ERR_SIGNER_URI" });
  },
);
const limits = { timeoutMs: null, slowTimeoutMs: null, clock: null };
const backends = {
  awsKms: () => awsKmsBackend({ ...limits, region: null, endpoint: null, credentials: null, deletionWindowDays: null }),
  azureKeyVault: () =>
    azureKeyVaultBackend({ ...limits, vault: null, keyType: null, keyPrefix: null, credential: null }),
  googleKms: () => googleKmsBackend({ ...limits, cryptoKey: null, protectionLevel: null, endpoint: null }),
  pkcs11: () =>
    pkcs11Backend({ ...limits, modulePath: null, pin: null, token: null, environment: null, sessions: null }),
  vaultTransit: () => vaultTransitBackend({ ...limits, mount: null, keyPrefix: null, tokenFile: null, fetch: null }),
};
for (const [name, make] of Object.entries(backends)) {
  test(`${name}: null is not given`, async () => {
    await assert.rejects(make().open("none"), { code: "ERR_SIGNER_URI" });
  });
}
row<ObserveOptions>(
  "observe",
  {},
  { timeoutMs: null, maxBytes: null, totalMs: null, allowInsecure: null, signal: null, ca: null, resolve: null },
  (options) => observe("https://127.0.0.1", options).catch(({ code }: { code: string }) => code),
);
row<WatchOptions>(
  "watch",
  { durationMs: 0 },
  { intervalMs: null, clock: null, ask: null, tokens: null, onHappening: null, signal: null },
  async (options) => watch({ at: systemClock.now() - (systemClock.now() % 1e9) }, options),
);
