import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import {
  type JwksdErrorCode,
  type ProviderOptions,
  clientAlgorithms,
  createProvider,
  localSigner,
  withEncryptionKeyset,
  withEndpoints,
  withJWKSRotationActive,
  withKeyset,
  verify,
} from "../../src/index.ts";
import { missingMembers } from "../../src/publish/discovery.ts";
import { type Place, locate } from "../../src/publish/document-paths.ts";
import type { NodeResponse } from "../../src/publish/node-response.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { refusal } from "../support/refusal.ts";

type Input = [issuer: unknown, mountPrefix?: string | undefined, jwksPath?: string];
const place = (...[issuer, mountPrefix, jwksPath]: Input): Place => ({ issuer, mountPrefix, jwksPath }) as Place;

/** Returns the paths at which clients look for the metadata of an issuer with this path. @see OpenID Connect Discovery 1.0 section 4; RFC 8414 sections 3 and 5 */
const metadataOf = (path: string): string[] => [
  ...new Set([
    `${path}/.well-known/openid-configuration`,
    `/.well-known/openid-configuration${path}`,
    `/.well-known/oauth-authorization-server${path}`,
  ]),
];

const located: [input: Input, jwksUri: string, jwksPaths: string[], discoveryPaths: string[]][] = [
  [["https://op.example"], "https://op.example/jwks", ["/jwks"], metadataOf("")],
  [["https://op.example/"], "https://op.example/jwks", ["/jwks"], metadataOf("")],
  [["https://op.example", "/"], "https://op.example/jwks", ["/jwks"], metadataOf("")],
  [["https://op.example", "/oidc"], "https://op.example/oidc/jwks", ["/oidc/jwks", "/jwks"], metadataOf("")],
  [["https://op.example/", "/oidc/", "/keys"], "https://op.example/oidc/keys", ["/oidc/keys", "/keys"], metadataOf("")],
  [
    ["https://op.example/tenant", undefined, "/a/b.json"],
    "https://op.example/tenant/a/b.json",
    ["/tenant/a/b.json", "/a/b.json"],
    [...metadataOf("/tenant"), "/.well-known/openid-configuration"],
  ],
  [
    ["https://op.example/tenant/", "/oidc", "/jwks"],
    "https://op.example/tenant/oidc/jwks",
    ["/tenant/oidc/jwks", "/oidc/jwks", "/jwks"],
    [...metadataOf("/tenant"), "/.well-known/openid-configuration"],
  ],
  [["http://127.0.0.1:9900"], "http://127.0.0.1:9900/jwks", ["/jwks"], metadataOf("")],
  [["http://localhost:1"], "http://localhost:1/jwks", ["/jwks"], metadataOf("")],
  [["http://op.localhost"], "http://op.localhost/jwks", ["/jwks"], metadataOf("")],
  [["http://[::1]:1"], "http://[::1]:1/jwks", ["/jwks"], metadataOf("")],
  [
    ["https://op.example/a~b!$&'()*+,;=:@-._"],
    "https://op.example/a~b!$&'()*+,;=:@-._/jwks",
    ["/a~b!$&'()*+,;=:@-._/jwks", "/jwks"],
    [...metadataOf("/a~b!$&'()*+,;=:@-._"), "/.well-known/openid-configuration"],
  ],
  [
    ["https://op.example", undefined, "/.well-known/jwks.json"],
    "https://op.example/.well-known/jwks.json",
    ["/.well-known/jwks.json"],
    metadataOf(""),
  ],
];

describe("derives the public URL and the documents' paths from issuer, mount prefix and path", () => {
  for (const [input, jwksUri, jwksPaths, discoveryPaths] of located) {
    test(JSON.stringify(input), () => {
      const locations = locate(place(...input));
      assert.equal(locations.issuer, input[0]);
      assert.equal(locations.jwksUri, jwksUri);
      const paths = (route: string) => [...locations.routes].filter(([, to]) => to === route).map(([path]) => path);
      assert.deepEqual(paths("jwks").toSorted(), jwksPaths.toSorted());
      assert.deepEqual(paths("discovery").toSorted(), discoveryPaths.toSorted());
    });
  }
});

const op = "https://op.example";
const clash = "/.well-known/openid-configuration";

const refused: [code: JwksdErrorCode, ...input: Input][] = [
  ["ERR_ISSUER_INVALID", undefined],
  ["ERR_ISSUER_INVALID", ""],
  ["ERR_ISSUER_INVALID", "op.example"],
  ["ERR_ISSUER_INVALID", "http://op.example"],
  ["ERR_ISSUER_INVALID", "http://localhost.example"],
  ["ERR_ISSUER_INVALID", "http://127.0.0.1.example"],
  ["ERR_ISSUER_INVALID", "http://10.0.0.1"],
  ["ERR_ISSUER_INVALID", "ftp://op.example"],
  ["ERR_ISSUER_INVALID", `${op}?`],
  ["ERR_ISSUER_INVALID", `${op}/?a=b`],
  ["ERR_ISSUER_INVALID", `${op}#`],
  ["ERR_ISSUER_INVALID", `${op}/#a`],
  ["ERR_ISSUER_INVALID", "https://user@op.example"],
  ["ERR_ISSUER_INVALID", "https://user:secret@op.example"],
  ["ERR_ISSUER_INVALID", "http://user:secret@op.example/?a#b"],
  // Not URLs, or with another scheme.
  ["ERR_ISSUER_INVALID", "https//user:secret@op.example"],
  ["ERR_ISSUER_INVALID", "https://user:secret@op example"],
  ["ERR_ISSUER_INVALID", "https://user:secret@"],
  ["ERR_ISSUER_INVALID", "user:secret@op.example"],
  ["ERR_ISSUER_INVALID", "https://OP.example"],
  ["ERR_ISSUER_INVALID", "HTTPS://op.example"],
  ["ERR_ISSUER_INVALID", "https://op.example:443"],
  ["ERR_ISSUER_INVALID", "https:op.example"],
  ["ERR_ISSUER_INVALID", " https://op.example"],
  ["ERR_ISSUER_INVALID", `${op}/a/../b`],
  ["ERR_ISSUER_INVALID", "https://\xf6p.example"],
  ["ERR_PATH_INVALID", `${op}//`],
  ["ERR_PATH_INVALID", `${op}/a//`],
  ["ERR_PATH_INVALID", `${op}//a`],
  ["ERR_PATH_INVALID", `${op}/%61`],
  ["ERR_PATH_INVALID", `${op}/a b`],
  ["ERR_PATH_INVALID", `${op}/\xc4`],
  ...[
    "",
    "oidc",
    "//",
    "/a//",
    "//a",
    "/a//b",
    "/a?",
    "/a#",
    "/./a",
    "/a/..",
    "/a b",
    "/%61",
    "/\xe9",
    "/a\\b",
    op,
  ].map((mountPrefix): [JwksdErrorCode, ...Input] => ["ERR_PATH_INVALID", op, mountPrefix]),
  ...[
    "",
    "jwks",
    "/",
    "//",
    "/jwks/",
    "//jwks",
    "/a//b",
    "/jwks?a=b",
    "/jwks#a",
    "/./jwks",
    "/../jwks",
    "/jwks/..",
    "/jw ks",
    "/%6awks",
    "/jwks\n",
    op,
  ].map((jwksPath): [JwksdErrorCode, ...Input] => ["ERR_PATH_INVALID", op, undefined, jwksPath]),
  ["ERR_PATH_INVALID", op, undefined, clash],
  ["ERR_PATH_INVALID", op, "/oidc", clash],
  ["ERR_PATH_INVALID", op, "/.well-known", "/openid-configuration"],
  ["ERR_PATH_INVALID", `${op}/tenant`, undefined, `/tenant${clash}`],
  ["ERR_PATH_INVALID", `${op}/tenant`, "/tenant", clash],
  ["ERR_PATH_INVALID", op, undefined, "/.well-known/oauth-authorization-server"],
  ["ERR_PATH_INVALID", `${op}/tenant`, undefined, `${clash}/tenant`],
  ["ERR_PATH_INVALID", `${op}/tenant`, "/.well-known", "/oauth-authorization-server/tenant"],
];

describe("rejects invalid issuers, prefixes and paths", () => {
  for (const [code, ...input] of refused) {
    test(`${code}: ${JSON.stringify(input)}`, async () => {
      const error = await refusal(() => locate(place(...input)), code);
      assert.equal(error.name, "ConfigError");
      assert.ok(!error.message.includes("secret"), "the message must not contain the password");
    });
  }
});

test("the message for an issuer that is not a URL gives an example, and quotes the issuer unless it contains a password", () => {
  assert.throws(
    () => locate({ issuer: "login.example.com" }),
    /issuer "login.example.com" is not a URL; use a URL such as https:/,
  );
});

test("leaves the discovery document's paths to other handlers if the provider has no such document", () => {
  const { routes } = locate({ issuer: `${op}/tenant`, mountPrefix: "/oidc", discovery: false });
  assert.deepEqual([...new Set(routes.values())], ["jwks"]);
  assert.equal(locate({ issuer: op, jwksPath: clash, discovery: false }).jwksUri, op + clash);
});

const url = "https://op.example/.well-known/openid-configuration";
const base: ProviderOptions = {
  issuer: "https://op.example",
  keyset: [{ kid: "a", signer: await localSigner(ecKey("a")) }],
  jwksRotationActive: () => assert.fail("the predicate is for the JWK Set only"),
};
const own = {
  issuer: "https://op.example",
  jwks_uri: "https://op.example/jwks",
  id_token_signing_alg_values_supported: ["ES256"],
};

const metadatas: [name: string, metadata: Record<string, unknown> | null | undefined][] = [
  ["none", undefined],
  ["null", null],
  ["clients' algorithms", { token_endpoint_auth_signing_alg_values_supported: clientAlgorithms }],
  ["other clients' algorithms", { request_object_signing_alg_values_supported: ["ES256", "none"] }],
  ["other members", { token_endpoint: "https://op.example/token", claims_supported: ["sub"], "ui_locales#de": "\xe4" }],
];

describe("the discovery document has jwksd's members and the provider's metadata:", () => {
  for (const [name, metadata] of metadatas) {
    test(name, async () => {
      const { fetch } = await createProvider(base, { metadata });
      const response = await fetch(new Request(url));
      const text = await response.text();
      const etag = `"${createHash("sha256").update(text).digest("hex")}"`;
      assert.deepEqual(JSON.parse(text), { ...own, ...metadata });
      const other = await fetch(new Request("https://op.example/.well-known/oauth-authorization-server?x"));
      assert.equal(await other.text(), text);
      assert.deepEqual(Object.fromEntries(response.headers), {
        "access-control-allow-origin": "*",
        "access-control-expose-headers": "ETag, Age, Date",
        "cache-control": "public, max-age=3600",
        "content-length": String(Buffer.byteLength(text)),
        "content-type": "application/json",
        etag,
        "x-content-type-options": "nosniff",
      });
      for (const method of ["GET", "HEAD"])
        assert.equal((await fetch(new Request(url, { method, headers: { "If-None-Match": etag } }))).status, 304);
    });
  }
});

test("clients may sign with more algorithms than the provider", () => {
  assert.deepEqual(clientAlgorithms, ["RS256", "PS256", "ES256", "EdDSA"]);
});

describe("metadata cannot override", () => {
  for (const name of [...Object.keys(own), "JWKS_URI", "\u0130ssuer"]) {
    test(name, async () => {
      const error = await refusal(
        () => createProvider(base, { metadata: { [name]: undefined } }),
        "ERR_OPTION_INVALID",
      );
      assert.ok(error.message.includes(name));
    });
  }
});

describe("without a discovery document", () => {
  test("the document's paths are not recognized, and the JWK Set's path stays the same", async () => {
    const provider = await createProvider(base, { discovery: false, jwksRotationActive: () => false });
    assert.equal((await provider.fetch(new Request(url))).status, 404);
    assert.equal((await provider.fetch(new Request(url, { method: "POST" }))).status, 404);
    assert.equal((await provider.fetch(new Request(provider.jwksUri))).status, 200);
    let passed = 0;
    const request = { method: "GET", url: "/.well-known/openid-configuration", headers: {} };
    const untouched = new Proxy({}, { get: () => assert.fail("the response belongs to the next handler") });
    provider.node(request, untouched as NodeResponse, () => (passed += 1));
    assert.equal(passed, 1, "the next handler may serve its own document");
  });

  test("metadata is rejected", async () => {
    const error = await refusal(
      () => createProvider(base, { discovery: false, metadata: { token_endpoint: "https://op.example/token" } }),
      "ERR_OPTION_INVALID",
    );
    assert.match(error.message, /"metadata".*"discovery"/);
  });
});

describe("missingMembers", () => {
  const whole = {
    authorization_endpoint: "https://op.example/authorize",
    token_endpoint: "https://op.example/token",
    response_types_supported: ["code"],
    subject_types_supported: ["public"],
  };
  for (const name of Object.keys(whole)) {
    test(`reports a missing ${name}`, () => {
      assert.deepEqual(missingMembers({ ...whole, [name]: undefined }), [name]);
      assert.deepEqual(missingMembers({ ...whole, [name]: null }), [name]);
    });
  }
  test("reports nothing if no member is missing", () => assert.deepEqual(missingMembers(whole), []));
});

const issuer = "https://op.example";
const keyset = [{ kid: "a", signer: await localSigner(ecKey("a")) }];
const otherKeyset = [{ kid: "b", signer: await localSigner(ecKey("b")) }];
const encryptionKeyset = [{ kid: "e", publicKey: withoutPrivate(ecKey("e")) }];
const given: ProviderOptions = { issuer, keyset };

describe("fetch, called with the same arguments as the global fetch", () => {
  test("serves a key set and its discovery document, and handles revalidations", async () => {
    const { jwksUri, sign, fetch } = await createProvider(given);
    const keys = createRemoteKeySet({ issuer, fetch });
    const token = await sign({ aud: "api" }, { lifetimeSeconds: 60 });
    await verify(token, { keys, issuer, audience: "api", algorithms: ["ES256"] });
    await keys.refresh();
    assert.equal(keys.state()?.jwksUri, jwksUri);
    assert.equal((await fetch(jwksUri, { method: "POST" })).status, 405);
    await assert.rejects(fetch("no URL", {}), TypeError);
  });

  test("ignores additional arguments that a platform passes after a Request", async () => {
    const { jwksUri, fetch } = await createProvider(given);
    // As in Workers, where the environment may have any member.
    const handler: (request: Request, env: { readonly method: string }) => Response | Promise<Response> = fetch;
    assert.equal((await handler(new Request(jwksUri), { method: "POST" })).status, 200);
  });
});

/** Returns the observable effects of options. */
async function seen(options: readonly (ProviderOptions | null | undefined)[]) {
  const provider = await createProvider(...options);
  const response = await provider.fetch(new Request(provider.jwksUri));
  const { keys } = (await response.json()) as { keys: { kid: string }[] };
  return {
    jwksUri: provider.jwksUri,
    kids: keys.map(({ kid }) => kid).join(" "),
    rotation: response.headers.get("cache-control")?.includes("max-age=300,"),
    cors: response.headers.has("access-control-allow-origin"),
  };
}

const defaults = { jwksUri: `${issuer}/jwks`, kids: "a", rotation: false, cors: true };
const throwing = (): boolean => assert.fail("an overridden option was called");

type Given = ProviderOptions | null | undefined;
const encrypting = withEncryptionKeyset(encryptionKeyset);
const at = (path: string) => ({ jwksUri: issuer + path });
const endpoint = (jwks: string) => withEndpoints({ jwks });
const mode = withJWKSRotationActive;

const merges: [name: string, options: readonly Given[], differs: Partial<typeof defaults>][] = [
  ["defaults", [given], {}],
  ["one object or many", [{ issuer }, { keyset }], {}],
  ["null and undefined instead of options", [null, given, undefined], {}],
  ["null for each option", [given, allNull(null)], {}],
  ["undefined for each option", [given, allNull(undefined)], {}],
  ["null before a value", [allNull(null), given], {}],
  ["withKeyset", [{ issuer }, withKeyset(keyset)], {}],
  ["withKeyset: the last one wins", [given, withKeyset(otherKeyset)], { kids: "b" }],
  ["withKeyset: a plain object after it wins", [withKeyset(otherKeyset), given], {}],
  ["withKeyset(null) has no effect", [given, withKeyset(null)], {}],
  ["withEncryptionKeyset", [given, encrypting], { kids: "a e" }],
  ["withEncryptionKeyset: the last one wins", [given, encrypting, withEncryptionKeyset([])], {}],
  ["withEncryptionKeyset(null) has no effect", [given, encrypting, withEncryptionKeyset(null)], { kids: "a e" }],
  ["withEndpoints", [given, endpoint("/k")], at("/k")],
  ["withEndpoints: the last one wins", [endpoint("/k"), given, endpoint("/l")], at("/l")],
  ["withEndpoints: the last one replaces the whole option", [given, endpoint("/k"), withEndpoints({})], {}],
  ["withEndpoints(null) has no effect", [given, endpoint("/k"), withEndpoints(null)], at("/k")],
  ["null as a path means the default", [given, withEndpoints({ jwks: null })], {}],
  ["withJWKSRotationActive", [given, mode(() => true)], { rotation: true }],
  ["withJWKSRotationActive: the last one wins", [given, mode(throwing), mode(() => false)], {}],
  ["withJWKSRotationActive(null)", [given, mode(null)], {}],
  ["withJWKSRotationActive(null) wins", [given, mode(throwing), mode(null)], {}],
  ["withJWKSRotationActive(undefined) wins", [given, mode(throwing), mode(undefined)], {}],
  ["withJWKSRotationActive: a predicate after null", [given, mode(null), mode(() => true)], { rotation: true }],
  [
    "null as a predicate in a plain object has no effect",
    [given, mode(() => true), allNull(null), allNull(undefined)],
    { rotation: true },
  ],
  ["mountPrefix: the last one wins", [given, { mountPrefix: "/x" }, { mountPrefix: "/y" }], at("/y/jwks")],
  ["issuer: the last one wins", [given, { issuer: `${issuer}/t` }], at("/t/jwks")],
  ["cors: the last one wins", [{ ...given, cors: true }, { cors: false }], { cors: false }],
];

function allNull(nil: null | undefined): ProviderOptions {
  const names: readonly (keyof ProviderOptions)[] = [
    "issuer",
    "mountPrefix",
    "endpoints",
    "keyset",
    "encryptionKeyset",
    "jwksRotationActive",
    "metadata",
    "cors",
    "onWarning",
    "signerLimits",
    "clock",
  ];
  return Object.fromEntries(names.map((name) => [name, nil]));
}

describe("endpoint specification, section 4, rotation cache mode, 4 and 5: undefined means the long cache, the last value wins, and options merge left to right", () => {
  for (const [name, options, differs] of merges)
    test(name, async () => assert.deepEqual(await seen(options), { ...defaults, ...differs }));
});

const refusedOptions: [code: JwksdErrorCode, message: RegExp, ...options: unknown[]][] = [
  ["ERR_OPTION_UNKNOWN", /"JWKSRotationActive"/, { ...given, JWKSRotationActive: () => true }],
  ["ERR_OPTION_UNKNOWN", /"constructor"/, { ...given, constructor: {} }],
  ["ERR_OPTION_UNKNOWN", /"JWKS" endpoint/, given, { endpoints: { JWKS: "/k" } }],
  ["ERR_OPTION_INVALID", /"metadata".*JSON/, { ...given, metadata: { size: 1n } }],
  ["ERR_OPTION_INVALID", /"metadata".*toJSON/, { ...given, metadata: { toJSON: () => ({}) } }],
  ["ERR_OPTION_INVALID", /"metadata".*toJSON/, { ...given, metadata: new Date(0) }],
  ["ERR_OPTION_INVALID", /an object is expected/, given, withKeyset],
  ["ERR_OPTION_INVALID", /an object is expected/, given, 5],
  ["ERR_ISSUER_INVALID", /missing/, { keyset }],
  ["ERR_KEYSET_EMPTY", /keyset/, { issuer }],
  ["ERR_KEYSET_EMPTY", /keyset/, given, { keyset: [] }],
];

describe("rejects invalid options", () => {
  for (const [code, message, ...options] of refusedOptions) {
    test(`${code}: ${message.source}`, async () => {
      const error = await refusal(() => createProvider(...(options as ProviderOptions[])), code);
      assert.match(error.message, message);
    });
  }
});
