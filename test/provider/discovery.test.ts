import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { type ProviderOptions, createProvider, localSigner } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { refusal } from "../support/refusal.ts";

const url = "https://op.example/.well-known/openid-configuration";
const base: ProviderOptions = {
  issuer: "https://op.example",
  keyset: [{ keyId: "a", signer: await localSigner(ecKey("a")) }],
  jwksRotationActive: () => assert.fail("the predicate is for the JWK Set only"),
};
const clientAlgs = ["RS256", "PS256", "ES256", "EdDSA"];
const own = {
  issuer: "https://op.example",
  jwks_uri: "https://op.example/jwks",
  id_token_signing_alg_values_supported: ["ES256"],
  token_endpoint_auth_signing_alg_values_supported: clientAlgs,
  request_object_signing_alg_values_supported: clientAlgs,
};

const metadatas: [name: string, metadata: Record<string, unknown> | null | undefined][] = [
  ["none", undefined],
  ["null", null],
  ["of its own", { token_endpoint: "https://op.example/token", claims_supported: ["sub"], "ui_locales#de": "\xe4" }],
];

describe("the discovery document is what jwksd sets, and the provider's own metadata", () => {
  for (const [name, metadata] of metadatas) {
    test(name, async () => {
      const { fetch } = await createProvider(base, { metadata });
      const response = fetch(new Request(url));
      const text = await response.text();
      const etag = `"${createHash("sha256").update(text).digest("hex")}"`;
      assert.deepEqual(JSON.parse(text), { ...own, ...metadata });
      assert.deepEqual(Object.fromEntries(response.headers), {
        "access-control-allow-origin": "*",
        "cache-control": "public, max-age=3600",
        "content-length": String(Buffer.byteLength(text)),
        "content-type": "application/json",
        etag,
        "x-content-type-options": "nosniff",
      });
    });
  }
});

describe("conditional requests", () => {
  const rows: [name: string, ifNoneMatch: (etag: string) => string, status: number][] = [
    ["its ETag", (etag) => etag, 304],
    ["*", () => "*", 304],
    ["a list", (etag) => `"a", ${etag}`, 304],
    ["weak", (etag) => `W/${etag}`, 200],
    ["the ETag of the JWK Set", () => '"a"', 200],
  ];
  for (const [name, ifNoneMatch, status] of rows) {
    for (const method of ["GET", "HEAD"]) {
      test(`${method}, ${name}`, async () => {
        const { fetch } = await createProvider(base);
        const etag = fetch(new Request(url)).headers.get("etag") ?? "";
        const response = fetch(new Request(url, { method, headers: { "If-None-Match": ifNoneMatch(etag) } }));
        assert.equal(response.status, status);
        assert.equal(response.headers.get("etag"), etag);
        assert.equal(response.headers.get("cache-control"), "public, max-age=3600");
        assert.equal(response.headers.has("content-type"), status === 200);
        assert.equal((await response.text()).length > 0, status === 200 && method === "GET");
      });
    }
  }
});

describe("metadata cannot override", () => {
  for (const name of Object.keys(own)) {
    test(name, async () => {
      const error = await refusal(
        () => createProvider(base, { metadata: { [name]: undefined } }),
        "ERR_METADATA_RESERVED",
      );
      assert.ok(error.message.includes(name));
    });
  }
});
