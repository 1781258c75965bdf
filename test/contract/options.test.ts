// Options: `null` means not given; missing, unknown and invalid options are rejected by name. docs/options.md, which is generated from the
// types, lists them all.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { decodeProtectedHeader } from "jose";
import { type ObserveOptions, type WatchOptions, observeIssuer, watchJwkSet } from "../../src/doctor/node/index.ts";
import {
  type ClientAssertionOptions,
  type Endpoints,
  type RequestObjectOptions,
  createRequestObject,
  type ClientDocumentsOptions,
  type ClientVerifierOptions,
  type ProviderOptions,
  type SignOptions,
  type Signer,
  type SignerLimits,
  type VerifyOptions,
  createClientAssertion,
  createClientDocuments,
  createClientVerifier,
  createProvider,
  localSigner,
  memoryReplayStore,
  verify,
} from "../../src/index.ts";
import { awsKmsBackend } from "../../src/keys/kms/aws-kms.ts";
import { azureKeyVaultBackend } from "../../src/keys/kms/azure-key-vault.ts";
import { googleKmsBackend } from "../../src/keys/kms/google-kms.ts";
import { vaultTransitBackend } from "../../src/keys/kms/vault-transit.ts";
import { type SignerBackendOptions, openSigner } from "../../src/keys/open-signer.ts";
import { pkcs11Backend } from "../../src/keys/pkcs11/backend.ts";
import { type GuardedFetchOptions, createGuardedFetch } from "../../src/node/index.ts";
import {
  type KeyManagerOptions,
  type RotateOptions,
  type RotationPolicyOptions,
  type SavedSetOptions,
  createKeyManager,
  startWithSavedSet,
} from "../../src/rotation/index.ts";
import { type IssuersOptions, type ListIssuersOptions, createIssuers } from "../../src/rotation/issuers/index.ts";
import type { ForceOptions, RollBackOptions } from "../../src/rotation/manager/types.ts";
import { liveRecords } from "../../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/index.ts";
import type { MemoryStoreOptions } from "../../src/rotation/store/memory.ts";
import { type SignClientOptions, createSignClient } from "../../src/sign/client/index.ts";
import type { SignInputOptions } from "../../src/sign/token/sign-input.ts";
import { type TestIssuerOptions, createTestIssuer } from "../../src/testing/index.ts";
import { type BearerGuardOptions, createBearerGuard } from "../../src/verify/bearer/index.ts";
import type { ReplayStoreOptions } from "../../src/verify/client/replay-store.ts";
import { type RemoteKeySetOptions, createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { ecKey } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";

const issuer = "https://op.example";
const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];
const provider = await createProvider({ issuer, keyset });
const claims = { sub: "a", aud: "b" };
const token = await provider.sign(claims, { lifetimeSeconds: 60 });
const jwkSet = await (await provider.fetch(new Request(provider.jwksUri))).text();
const keys = createRemoteKeySet({ jwksUri: provider.jwksUri, fetch: async () => new Response(jwkSet) });

/** Returns the provider's response for a URL. */
const serve = async (url: string): Promise<Response> => provider.fetch(new Request(url));

/** Each function's options, with their names, defaults, and types or units. */
const documented = new Map(
  (await readFile(new URL("../../docs/options.md", import.meta.url), "utf8")).split(/^### /m).map((section) => {
    const rows = section.matchAll(/^\| `(\w+)` \| ((?:[^|]|\\\|)*) \| ([^|]*) \|/gm);
    return [
      section.split("\n", 1)[0] ?? "",
      Array.from(rows, ([, name = "", type, value = ""]) => [name, value, type]),
    ] as const;
  }),
);
const optionsOf = (title: string) => documented.get(title) ?? assert.fail(title);
const namesOf = (title: string, isMeant = (value: string): boolean => value !== "required"): readonly string[] =>
  optionsOf(title).flatMap(([name = "", value = ""]) => (isMeant(value) ? [name] : []));

/** Reports whether an option is required in a call that has no alternative to it. */
const isRequired = (value: string): boolean => /^required(?:, unless (?:`keys`|the claims)|$)/.test(value);

/** The names of options whose type does not accept `null`: `never`. */
type WithoutNull<Options> = {
  [Name in keyof Options]-?: undefined extends Options[Name] ? (null extends Options[Name] ? never : Name) : never;
}[keyof Options];

/** Options that are checked when they are used. */
const checkedLater = new Set(["signal", "state"]);

/** Tests the options of a function whose result with the complete options is a value, or an error with the code `refusal`. */
function row<Options>(
  title: string,
  complete: Options,
  call: [WithoutNull<Options>] extends [never] ? (options: Options) => Promise<unknown> : never,
  refusal?: string,
): void {
  async function resultOf(options: Options): Promise<unknown> {
    try {
      return await call(options);
    } catch (error) {
      if ((error as { readonly code?: string }).code === refusal) return refusal;
      throw error;
    }
  }
  async function isRefused(options: object, code: RegExp, message: RegExp): Promise<void> {
    await assert.rejects(resultOf({ ...complete, ...options }), { code, message }, String(message));
  }

  test(`${title}: null is treated as not given`, async () => {
    const expected = await resultOf(complete);
    const names = namesOf(title);
    assert.ok(names.length > 0);
    for (const name of names) {
      const one = complete[name as keyof Options] === undefined ? { [name]: null } : {};
      assert.deepEqual(await resultOf({ ...complete, ...one }), expected, name);
    }
    const all = Object.fromEntries(names.map((name) => [name, null]));
    assert.deepEqual(await resultOf({ ...all, ...complete }), expected);
  });
  test(`${title}: rejects an unknown option or a value of the wrong type and names the option`, async () => {
    const [[first] = [""]] = optionsOf(title);
    await isRefused({ [`${first}X`]: 1 }, /OPTION_UNKNOWN/, new RegExp(`"${first}X".*"${first}"`));
    for (const [name = "", , type = ""] of optionsOf(title)) {
      const isNumber = ["seconds", "milliseconds", "days", "bytes", "count"].includes(type);
      const wrong = [Symbol("x"), ...(isNumber ? [-1, Number.NaN, Infinity, "5"] : [])];
      for (const value of checkedLater.has(name) ? [] : wrong)
        await isRefused({ [name]: value }, /(OPTION|CLAIMS)_INVALID/, new RegExp(`\\b${name}\\b.* must `));
    }
  });
  const required = namesOf(title, isRequired);
  if (required.length === 0) return;
  test(`${title}: reports a missing required option`, async () => {
    for (const name of required)
      for (const none of [undefined, null]) {
        const message = new RegExp(`\\b${name}"?(?: \\w+)? is missing; `);
        await assert.rejects(resultOf({ ...complete, [name]: none }), { message }, name);
      }
  });
}

row<ProviderOptions>("createProvider", { issuer, keyset }, async (options) => {
  const made = await createProvider(options);
  const response = await made.fetch(new Request(made.jwksUri));
  return [made.jwksUri, response.headers.get("cache-control"), await response.text()];
});
row<Endpoints>(
  "createProvider: endpoints",
  {},
  async (endpoints) => (await createProvider({ issuer, keyset, endpoints })).jwksUri,
);
row<SignerLimits>("createProvider: signerLimits", {}, async (signerLimits) => {
  // Not a local signer, because those have no limits.
  const [{ signer }] = keyset as [(typeof keyset)[0]];
  const signing: Signer = { publicKey: signer.publicKey, sign: async (input) => signer.sign(input) };
  const limited = await createProvider({ issuer, keyset: [{ kid: "a", signer: signing }], signerLimits });
  return decodeProtectedHeader(await limited.sign(claims, { lifetimeSeconds: 60 }));
});
row<SignOptions>("provider.sign", { lifetimeSeconds: 60 }, async (options) =>
  decodeProtectedHeader(await provider.sign(claims, options)),
);
row<VerifyOptions>("verify", { keys, issuer, audience: "b", algorithms: ["ES256"] }, (options) =>
  verify(token, options),
);
row<RemoteKeySetOptions>(
  "createRemoteKeySet",
  { jwksUri: provider.jwksUri, fetch: async () => new Response(jwkSet) },
  async (options) => (await createRemoteKeySet(options)({ alg: "ES256", kid: "a" })).type,
);
row<BearerGuardOptions>(
  "createBearerGuard",
  { issuer, audience: "b", typ: "JWT", keySet: { fetch: serve } },
  async (options) => {
    const headers = { authorization: `Bearer ${token}` };
    const checked = await createBearerGuard(options).check(new Request("https://api.example", { headers }));
    return checked instanceof Response ? checked.status : checked.claims;
  },
);
row<ClientVerifierOptions>("createClientVerifier", { issuer }, async (options) => {
  const assertion = await createClientAssertion(provider, { clientId: "c", audience: issuer });
  const client = { clientId: "c", jwks: JSON.parse(jwkSet) as object };
  return (await createClientVerifier(options).clientAssertion(assertion, client as never)).header;
});
const clientsFetch = async (): Promise<Response> => new Response("{}");
row<ClientDocumentsOptions>("createClientDocuments", { issuer, fetch: clientsFetch }, async (options) => {
  const documents = createClientDocuments(options);
  return [
    documents.metadata,
    await documents.resolve("https://client.example/").catch(({ code }: Error & { code: string }) => code),
  ];
});
row<ClientAssertionOptions>("createClientAssertion", { clientId: "c", audience: issuer }, async (options) =>
  decodeProtectedHeader(await createClientAssertion(provider, options)),
);
row<RequestObjectOptions>("createRequestObject", { clientId: "c", audience: issuer, parameters: {} }, async (options) =>
  decodeProtectedHeader(await createRequestObject(provider, options)),
);
row<ReplayStoreOptions>("memoryReplayStore", {}, async (options) =>
  memoryReplayStore(options)("a".repeat(43), Date.now() + 1000, "c"),
);
row<RotationPolicyOptions>("createKeyManager: initialPolicy", {}, async (options) => rotationPolicy(options));
row<IssuersOptions>(
  "createIssuers",
  { issuer: "https://*.example", store: () => memoryStore(), wrappingKeys: newWrappingKey() },
  async (options) => (await createIssuers(options)).get("https://op.example"),
);
const manager = (): KeyManagerOptions => ({ issuer, store: memoryStore(), wrappingKeys: [newWrappingKey()] });
const complete = manager();
row<KeyManagerOptions>("createKeyManager", complete, async (options) => {
  const store = options.store === complete.store ? memoryStore() : options.store;
  const made = await createKeyManager({ ...options, store });
  const follows = await createProvider({ keys: made });
  await follows.sign(claims, { lifetimeSeconds: 60 });
  await made.close();
  return [made.policy, made.records.map(({ state }) => state)];
});
const keysStart: SavedSetOptions["start"] = (options) => createKeyManager({ ...manager(), ...options });
const noText = { name: "nothing", read: async () => undefined, write: async () => {} };
const savedSet = (): SavedSetOptions => ({
  issuer,
  wrappingKeys: newWrappingKey(),
  savedSet: noText,
  start: keysStart,
});
row<SavedSetOptions>("startWithSavedSet", savedSet(), async (options) => {
  const made = await startWithSavedSet(options);
  await made.close();
  return made.manager?.policy;
});
row<RotateOptions>("manager.rotate", {}, async (options) => {
  const made = await createKeyManager(manager());
  const { records } = await made.rotate(options).finally(() => made.close());
  return liveRecords(records).map(({ use, alg, state }) => [use, alg, state]);
});
row<ForceOptions>(
  "manager.activate, retire, remove",
  {},
  async (options) => {
    const made = await createKeyManager(manager());
    await made.rotate();
    const { kid = "" } = made.records[1] ?? {};
    await made.activate(kid, options).finally(() => made.close());
  },
  "ERR_TOO_EARLY",
);
row<TestIssuerOptions>("createTestIssuer", {}, async (options) => (await createTestIssuer(options)).issuer);
row<RollBackOptions>(
  "manager.rollBack",
  {},
  async (options) => {
    const made = await createKeyManager(manager());
    await made.rollBack(options).finally(() => made.close());
  },
  "ERR_TRANSITION",
);
row<SignInputOptions>("signingKey().sign", { lifetimeSeconds: 60 }, async (options) => {
  const { kid, sign } = await provider.signingKey();
  const [header, payload] = [{ alg: "ES256", kid }, {}].map((part) =>
    Buffer.from(JSON.stringify(part)).toString("base64url"),
  );
  return (await sign(Buffer.from(`${header}.${payload}`), options)).length;
});
const listingStore = () => ({ ...memoryStore(), list: async () => [] });
row<ListIssuersOptions>("issuers.list", {}, async (options) => {
  const issuers = await createIssuers({
    issuer: "https://*.example",
    store: listingStore,
    wrappingKeys: newWrappingKey(),
  });
  return issuers.list(options);
});
row<MemoryStoreOptions>("memoryStore", {}, (options) => memoryStore(options).read());
row<SignClientOptions>(
  "createSignClient",
  { socket: "/run/none" },
  (options) => createSignClient(options).sign(claims, { lifetimeSeconds: 60 }),
  "ERR_SIGNER_UNAVAILABLE",
);
row<GuardedFetchOptions>(
  "createGuardedFetch",
  {},
  (options) => createGuardedFetch(options)("https://127.0.0.1", {}),
  "ERR_ADDRESS_FORBIDDEN",
);
row<SignerBackendOptions>(
  "openSigner",
  {},
  (options) => openSigner("aws-kms:none", { ...options, signal: null }),
  "ERR_SIGNER_URI",
);
const backends = {
  awsKms: awsKmsBackend,
  azureKeyVault: azureKeyVaultBackend,
  googleKms: googleKmsBackend,
  pkcs11: pkcs11Backend,
  vaultTransit: vaultTransitBackend,
};
for (const [name, make] of Object.entries(backends))
  row<object>(`openSigner: ${name}`, {}, async (options) => make(options).open("none"), "ERR_SIGNER_URI");
row<ObserveOptions>(
  "observeIssuer",
  {},
  (options) => observeIssuer("https://127.0.0.1", options),
  "ERR_ADDRESS_FORBIDDEN",
);
row<WatchOptions>("watchJwkSet", { durationMs: 0 }, async (options) => watchJwkSet({ at: 0 }, options));

test("the message for an invalid value names the value's type, unless another value of that type would be accepted", async () => {
  const rows: readonly (readonly [make: () => unknown, message: RegExp])[] = [
    [() => createRemoteKeySet({ jwksUri: 5 as never }), /"jwksUri" option must be .*, not a number$/],
    [() => createBearerGuard({ issuer, audience: "a", algorithms: "ES256" as never }), /, not a string$/],
    [() => createBearerGuard({ issuer, audience: "a", algorithms: {} as never }), /, not an object$/],
    [() => createBearerGuard({ issuer, audience: "a", algorithms: [""] }), /non-empty strings$/],
    [
      () => createBearerGuard({ issuer, audience: "a", metadata: [] as never }),
      /an object that is serializable as JSON, not an array$/,
    ],
    [() => createBearerGuard({ issuer, audience: "a", maxTokenBytes: 0 }), /from 1 to 1048576, not 0$/],
    [() => createBearerGuard({ issuer, audience: "a", token: true as never }), /must be a function, not a boolean$/],
    [() => verify(token, { keys, issuer: [], audience: "b", algorithms: ["ES256"] }), /an array of non-empty strings$/],
    [() => verify(token, { keys, issuer: 5 as never, audience: "b", algorithms: ["ES256"] }), /not a number$/],
    [() => memoryStore(5 as never), /an object is expected, not a number$/],
  ];
  for (const [make, message] of rows)
    await assert.rejects(async () => make(), { code: "ERR_OPTION_INVALID", message }, String(message));
});
