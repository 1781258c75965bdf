import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { describe, test } from "node:test";
import { type ProviderOptions, clientAlgorithms, createProvider, localSigner } from "../../src/index.ts";
import type { NodeResponse } from "../../src/library/http/node.ts";
import { missingMembers } from "../../src/library/provider/discovery.ts";
import { ecKey } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { refusal } from "../support/refusal.ts";

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
  ["what clients may sign with", { token_endpoint_auth_signing_alg_values_supported: clientAlgorithms }],
  ["other algorithms of clients", { request_object_signing_alg_values_supported: ["ES256", "none"] }],
  ["of its own", { token_endpoint: "https://op.example/token", claims_supported: ["sub"], "ui_locales#de": "\xe4" }],
];

describe("the discovery document is what jwksd sets, and the provider's own metadata", () => {
  for (const [name, metadata] of metadatas) {
    test(name, async () => {
      const { fetch } = await createProvider(base, { metadata });
      const response = await fetch(new Request(url));
      const text = await response.text();
      const etag = `"${createHash("sha256").update(text).digest("hex")}"`;
      assert.deepEqual(JSON.parse(text), { ...own, ...metadata });
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

describe("a client finds the metadata wherever a specification puts it", () => {
  const issuers: [issuer: string, source: string, paths: readonly string[]][] = [
    ["https://op.example", "RFC 8414 section 3.1", ["/.well-known/oauth-authorization-server"]],
    [
      "https://op.example/",
      "RFC 8414 section 3: without the slash at its end",
      ["/.well-known/oauth-authorization-server"],
    ],
    [
      "https://op.example/tenant1/a",
      "RFC 8414 sections 3 and 5, OpenID Connect Discovery 1.0 section 4",
      [
        "/.well-known/oauth-authorization-server/tenant1/a",
        "/.well-known/openid-configuration/tenant1/a",
        "/tenant1/a/.well-known/openid-configuration",
      ],
    ],
  ];
  const mistaken = [
    "/.well-known/oauth-authorization-server/",
    "/.well-known/oauth-authorization-server/tenant2",
    "/.well-known/openid-configuration/tenant1",
    "/tenant1/a/.well-known/oauth-authorization-server",
  ];
  for (const [issuer, source, paths] of issuers) {
    test(`${issuer}: ${source}`, async (t) => {
      const provider = await createProvider({ ...base, issuer });
      const origin = `http://127.0.0.1:${await listening(t, createServer(provider.node))}`;
      for (const path of paths) {
        for (const reply of [
          await provider.fetch(new Request(`https://op.example${path}?x`)),
          await fetch(origin + path),
        ]) {
          assert.equal(reply.status, 200, path);
          assert.deepEqual(await reply.json(), { ...own, issuer, jwks_uri: provider.jwksUri });
        }
      }
      for (const path of mistaken)
        assert.equal((await provider.fetch(new Request(`https://op.example${path}`))).status, 404, path);
    });
  }

  test("none of it is there without discovery", async () => {
    const { fetch } = await createProvider({ ...base, issuer: "https://op.example/tenant1/a" }, { discovery: false });
    for (const path of issuers[2]?.[2] ?? [])
      assert.equal((await fetch(new Request(`https://op.example${path}`))).status, 404, path);
  });
});

test("clients may sign with more than the provider, whose algorithms that does not widen", () => {
  assert.deepEqual(clientAlgorithms, ["RS256", "PS256", "ES256", "EdDSA"]);
});

describe("metadata cannot override", () => {
  for (const name of [...Object.keys(own), "JWKS_URI", "\u0130ssuer"]) {
    test(name, async () => {
      const error = await refusal(
        () => createProvider(base, { metadata: { [name]: undefined } }),
        "ERR_METADATA_RESERVED",
      );
      assert.ok(error.message.includes(name));
    });
  }
});

describe("without a discovery document", () => {
  test("its paths are as unknown as any other, and the JWK Set is where it was", async () => {
    const provider = await createProvider(base, { discovery: false, jwksRotationActive: () => false });
    assert.equal((await provider.fetch(new Request(url))).status, 404);
    assert.equal((await provider.fetch(new Request(url, { method: "POST" }))).status, 404);
    assert.equal((await provider.fetch(new Request(provider.jwksUri))).status, 200);
    let passed = 0;
    const request = { method: "GET", url: "/.well-known/openid-configuration", headers: {} };
    const untouched = new Proxy({}, { get: () => assert.fail("the response is that of the next handler") });
    provider.node(request, untouched as NodeResponse, () => (passed += 1));
    assert.equal(passed, 1, "a provider's own document is behind it");
  });

  test("there is no metadata either", async () => {
    const error = await refusal(
      () => createProvider(base, { discovery: false, metadata: { token_endpoint: "https://op.example/token" } }),
      "ERR_OPTION_INVALID",
    );
    assert.match(error.message, /"metadata".*"discovery"/);
  });
});

describe("a document is partial without", () => {
  const whole = {
    authorization_endpoint: "https://op.example/authorize",
    token_endpoint: "https://op.example/token",
    response_types_supported: ["code"],
    subject_types_supported: ["public"],
  };
  for (const name of Object.keys(whole)) {
    test(name, () => {
      assert.deepEqual(missingMembers({ ...whole, [name]: undefined }), [name]);
      assert.deepEqual(missingMembers({ ...whole, [name]: null }), [name]);
    });
  }
  test("none of those that it has", () => assert.deepEqual(missingMembers(whole), []));
});
