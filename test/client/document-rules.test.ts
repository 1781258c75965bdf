import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isRegisteredRedirectUri } from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { type Script, reply } from "../support/simulated.ts";
import { verdict } from "../token/compact.ts";
import { entry, jwks } from "./client.ts";
import { confidentialDocument, documentReply, documentUrl, documented, publicDocument } from "./documented.ts";

// One row for each MUST and MUST NOT of the drafts about an identifier, its document and the response with it. "00" and "02" are the sections of
// draft-ietf-oauth-client-id-metadata-document-00, which MCP 2026-07-28 requires, and of -02; "03" are the sections of the working group's copy of
// 20 September 2026, a month before -03. If they differ, the stricter one applies. Rules about the token endpoint and discovery are in
// documents.test.ts, rules about addresses in test/hostile/client-documents.test.ts.

describe("identifiers", () => {
  const rows: [source: string, clientId: unknown, expect: string][] = [
    ["drafts 00 and 02, section 3: a valid identifier", documentUrl, "accepted"],
    ["drafts 00 and 02, section 3: MUST use https", "http://client.example/client.json", "ERR_CLIENT_ID"],
    ["drafts 00 and 02, section 3: MUST use https", "ftp://client.example/client.json", "ERR_CLIENT_ID"],
    ["drafts 00 and 02, section 3: MUST contain a path", "https://client.example", "ERR_CLIENT_ID"],
    [
      "drafts 00 and 02, section 3: MUST NOT contain dot segments",
      "https://client.example/./client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "drafts 00 and 02, section 3: MUST NOT contain dot segments",
      "https://client.example/a/../client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "MUST NOT contain dot segments, even escaped ones",
      "https://client.example/a/%2e%2E/client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "MUST NOT contain dot segments that appear after decoding",
      "https://client.example/a/%2e%2e%2fclient.json",
      "ERR_CLIENT_ID",
    ],
    [
      "MUST NOT contain dot segments that appear after decoding",
      "https://client.example/a/..%5Cclient.json",
      "ERR_CLIENT_ID",
    ],
    ["MAY contain segments that begin with dots", "https://client.example/.client/..json", "accepted"],
    ["drafts 00 and 02, section 3: MUST NOT contain a fragment", `${documentUrl}#x`, "ERR_CLIENT_ID"],
    ["drafts 00 and 02, section 3: MUST NOT contain a fragment, even an empty one", `${documentUrl}#`, "ERR_CLIENT_ID"],
    [
      "drafts 00 and 02, section 3: MUST NOT contain user info",
      "https://user@client.example/client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "drafts 00 and 02, section 3: MUST NOT contain user info",
      "https://:secret@client.example/client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "drafts 00 and 02, section 3: MUST NOT contain user info, even if it is empty",
      "https://@client.example/client.json",
      "ERR_CLIENT_ID",
    ],
    ["drafts 00 and 02, section 3: MAY contain a port", "https://client.example:8443/client.json", "accepted"],
    ["drafts 00 and 02, section 3: SHOULD NOT contain a query", `${documentUrl}?tenant=1`, "accepted"],
    ["draft 02 section 3: a path of / is NOT RECOMMENDED", "https://client.example/", "accepted"],
    [
      "draft 02 section 3: only one spelling: without the default port",
      "https://client.example:443/client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "draft 02 section 3: only one spelling: the host in lowercase",
      "https://Client.example/client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "draft 02 section 3: only one spelling: the scheme in lowercase",
      "HTTPS://client.example/client.json",
      "ERR_CLIENT_ID",
    ],
    ["draft 02 section 3: only one spelling: without spaces", ` ${documentUrl}`, "ERR_CLIENT_ID"],
    ["draft 02 section 3: only one spelling: without spaces", "https://client.example/client .json", "ERR_CLIENT_ID"],
    [
      "draft 02 section 3: only one spelling: without line breaks",
      "https://client.example/client\n.json",
      "ERR_CLIENT_ID",
    ],
    [
      "draft 02 section 3: only one spelling: without backslashes",
      "https://client.example\\client.json",
      "ERR_CLIENT_ID",
    ],
    ["draft 02 section 3: only one spelling: the host in ASCII", "https://clïent.example/client.json", "ERR_CLIENT_ID"],
    [
      "draft 02 section 3: only one spelling: the host without a dot at its end",
      "https://client.example./client.json",
      "ERR_CLIENT_ID",
    ],
    [
      "draft 02 section 3: only one spelling: IPv4 addresses in dotted decimal",
      "https://0x7f.1/client.json",
      "ERR_CLIENT_ID",
    ],
    ["draft 02 section 8.6: MUST NOT be on loopback", "https://localhost/client.json", "ERR_CLIENT_ID"],
    ["draft 02 section 8.6: MUST NOT be on loopback", "https://[::1]/client.json", "ERR_CLIENT_ID"],
    ["MUST NOT be longer than an honest client needs", `https://client.example/${"a".repeat(2_026)}`, "ERR_CLIENT_ID"],
    ["not a URL", "client-1", "ERR_CLIENT_ID"],
    ["not a string", undefined, "ERR_CLIENT_ID"],
    ["not a string", { toString: () => documentUrl }, "ERR_CLIENT_ID"],
  ];
  for (const [source, clientId, expect] of rows) {
    test(`${source}: ${JSON.stringify(clientId)?.slice(0, 80)}: ${expect}`, async () => {
      const { resolve, origin } = documented((request, clock) =>
        documentReply({ ...publicDocument, client_id: request.url })(request, clock),
      );
      assert.equal(await verdict(resolve(clientId as string)), expect);
      assert.equal(origin.requests.length, expect === "accepted" ? 1 : 0);
    });
  }

  test("draft 02 section 8.6: a loopback host is accepted, even over http, if the issuer is on a loopback host", async () => {
    for (const [issuer, clientId, expect] of [
      ["http://localhost:3000", "http://localhost:4000/client.json", "accepted"],
      ["https://127.0.0.1:3000", "https://localhost:4000/client.json", "accepted"],
      ["http://localhost:3000", "http://client.example/client.json", "ERR_CLIENT_ID"],
      ["https://op.example", "http://localhost:4000/client.json", "ERR_CLIENT_ID"],
    ] as const) {
      const { resolve } = documented(documentReply({ ...publicDocument, client_id: clientId }), { issuer });
      assert.equal(await verdict(resolve(clientId)), expect, clientId);
    }
  });

  test("draft 02 section 8.6: keys on a loopback host are accepted only if the client is on a loopback host too", async () => {
    const jwks_uri = "http://localhost:4000/jwks";
    for (const [client_id, expect] of [
      ["http://localhost:4000/client.json", "accepted"],
      [documentUrl, "ERR_CLIENT_DOCUMENT"],
    ] as const) {
      const script = documentReply({ ...confidentialDocument, client_id, jwks_uri });
      const { resolve } = documented(script, { issuer: "http://localhost:3000" });
      assert.equal(await verdict(resolve(client_id)), expect, client_id);
    }
  });

  test("a query, a root path, and redirect URIs that any local program can claim cause warnings", async () => {
    const redirect_uris = ["http://localhost/callback", "http://127.0.0.1:9/callback"];
    const script: Script = (request, clock) =>
      documentReply({ ...publicDocument, client_id: request.url, redirect_uris })(request, clock);
    const { resolve } = documented(script);
    assert.deepEqual((await resolve("https://a.example/?b")).warnings, ["query", "root", "loopback"]);
    assert.deepEqual((await resolve("https://a.example/c?")).warnings, ["query", "loopback"]);
    for (const uri of [
      "http://127.0.0.2/",
      "http://LOCALHOST/",
      "https://localhost/",
      "http://a.localhost/",
      "http://2130706433/",
    ]) {
      const { resolve } = documented(documentReply({ ...publicDocument, redirect_uris: [uri] }));
      assert.deepEqual((await resolve(documentUrl)).warnings, ["loopback"], uri);
    }
    const { resolve: other } = documented(documentReply(publicDocument));
    assert.deepEqual((await other(documentUrl)).warnings, []);
  });
});

describe("documents", () => {
  const long = "x".repeat(5_120 - JSON.stringify({ ...publicDocument, x: "" }).length);
  const nested = (depth: number): unknown => (depth === 0 ? 1 : { a: nested(depth - 1) });
  const secretKey = { kty: "oct", k: "c2VjcmV0", kid: "a" };
  const keys = { keys: [entry("ES256")] };
  const { client_name: _, ...nameless } = publicDocument;
  const { client_id: __, ...anonymous } = publicDocument;
  const own = { ...confidentialDocument, jwks_uri: undefined };
  const rows: [source: string, document: unknown, expect: string][] = [
    ["draft 00 section 4.1, draft 02 section 4: a public client", publicDocument, "accepted"],
    ["draft 00 section 6.2, draft 02 section 8.2: a client with keys", confidentialDocument, "accepted"],
    ["draft 00 section 6.2, draft 02 section 8.2: a client with keys by value", { ...own, jwks }, "accepted"],
    [
      "draft 00 section 4.1, draft 02 section 4: MAY define other members",
      { ...publicDocument, "x-y": { z: [null, 1] } },
      "accepted",
    ],
    ["draft 00 section 4.1, draft 02 section 4: MUST contain client_id", anonymous, "ERR_CLIENT_DOCUMENT"],
    [
      "draft 00 section 4.1, draft 02 section 4: client_id MUST match",
      { ...publicDocument, client_id: `${documentUrl}/` },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 4: client_id MUST match by simple comparison",
      { ...publicDocument, client_id: documentUrl.toUpperCase() },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 4: client_id MUST match by simple comparison",
      { ...publicDocument, client_id: [documentUrl] },
      "ERR_CLIENT_DOCUMENT",
    ],
    ...["client_secret_post", "client_secret_basic", "client_secret_jwt"].flatMap((method): typeof rows => [
      [
        "drafts 00 and 02, section 4.1: MUST NOT use a client secret",
        { ...publicDocument, token_endpoint_auth_method: method },
        "ERR_CLIENT_DOCUMENT",
      ],
      [
        "drafts 00 and 02, section 4.1: MUST NOT use a client secret, even as one of several methods",
        { ...publicDocument, token_endpoint_auth_methods_supported: ["none", method] },
        "ERR_CLIENT_DOCUMENT",
      ],
    ]),
    [
      "drafts 00 and 02, section 4.1: MUST NOT use a client secret",
      { ...publicDocument, client_secret: "" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "drafts 00 and 02, section 4.1: MUST NOT use a client secret",
      { ...publicDocument, client_secret_expires_at: 0 },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "drafts 00 and 02, section 4.1: MUST NOT have a client secret, even if it is null",
      { ...publicDocument, client_secret: null },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "drafts 00 and 02, section 4.1: MUST NOT have a client secret, even if it is null",
      { ...publicDocument, client_secret_expires_at: null },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 4.1: MUST NOT contain a private key",
      { ...own, jwks: { keys: [ecKey("a")] } },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 4.1: MUST NOT contain a symmetric key",
      { ...own, jwks: { keys: [secretKey] } },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 4.1: MUST NOT contain a private key anywhere",
      { ...publicDocument, x: [ecKey("a")] },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 03 section 6: the method MUST be in the list",
      { ...confidentialDocument, token_endpoint_auth_methods_supported: ["none"] },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 03 section 6: the default of RFC 7591 MUST be ignored",
      { ...publicDocument, token_endpoint_auth_method: undefined },
      "accepted",
    ],
    [
      "draft 03 section 6: MUST NOT treat a list as missing",
      {
        ...publicDocument,
        token_endpoint_auth_method: undefined,
        token_endpoint_auth_methods_supported: ["tls_client_auth"],
      },
      "ERR_CLIENT_METHOD",
    ],
    [
      "draft 03 section 6: MUST NOT treat a list as missing, even an empty one",
      { ...publicDocument, token_endpoint_auth_method: undefined, token_endpoint_auth_methods_supported: [] },
      "ERR_CLIENT_METHOD",
    ],
    [
      "RFC 7591 section 2: jwks and jwks_uri MUST NOT both be present",
      { ...confidentialDocument, jwks: keys },
      "ERR_CLIENT_DOCUMENT",
    ],
    ["draft issue 100: private_key_jwt without keys", own, "ERR_CLIENT_KEYS_MISSING"],
    ["draft issue 100: private_key_jwt with an empty set", { ...own, jwks: { keys: [] } }, "ERR_CLIENT_KEYS_MISSING"],
    [
      "draft issue 100: private_key_jwt without keys, even if none is another choice",
      { ...publicDocument, token_endpoint_auth_methods_supported: ["none", "private_key_jwt"] },
      "ERR_CLIENT_KEYS_MISSING",
    ],
    ["RFC 7517 section 5: jwks MUST be a JWK Set", { ...own, jwks: ["a"] }, "ERR_CLIENT_DOCUMENT"],
    [
      "RFC 7517 section 5: a JWK Set of at most 64 keys",
      { ...own, jwks: { keys: Array.from({ length: 65 }, () => ({})) } },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri MUST be a public https URL",
      { ...confidentialDocument, jwks_uri: "http://client.example/jwks" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri MUST be a public https URL",
      { ...confidentialDocument, jwks_uri: "https://localhost/jwks" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri MUST be a public https URL",
      { ...confidentialDocument, jwks_uri: "https://a@b.example/" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri MUST be a public https URL",
      { ...confidentialDocument, jwks_uri: "https://b.example/#" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri MUST be a public https URL",
      { ...confidentialDocument, jwks_uri: "file:///etc/jwks" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri MUST be a public https URL",
      { ...confidentialDocument, jwks_uri: ["https://b.example/"] },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "only one spelling of a jwks_uri",
      { ...confidentialDocument, jwks_uri: "https://client.example./jwks" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri MUST be a public https URL",
      { ...confidentialDocument, jwks_uri: "jwks" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "draft 02 section 8.6: jwks_uri of 2,048 characters",
      { ...confidentialDocument, jwks_uri: `https://client.example/${"a".repeat(2_026)}` },
      "ERR_CLIENT_DOCUMENT",
    ],
    ["MCP: MUST include client_name", nameless, "ERR_CLIENT_DOCUMENT"],
    ["MCP: MUST include client_name", { ...publicDocument, client_name: " " }, "ERR_CLIENT_DOCUMENT"],
    ["MCP: MUST include redirect_uris", { ...publicDocument, redirect_uris: undefined }, "ERR_CLIENT_DOCUMENT"],
    ["MCP: MUST include redirect_uris", { ...publicDocument, redirect_uris: [] }, "ERR_CLIENT_DOCUMENT"],
    [
      "MCP: MUST include redirect_uris",
      { ...publicDocument, redirect_uris: "https://a.example/" },
      "ERR_CLIENT_DOCUMENT",
    ],
    ...["/callback", "https://a.example/#b", "https://a.example/ b", "https://a@b.example/", "http://a.example/"].map(
      (uri): (typeof rows)[number] => [
        "RFC 6749 section 3.1.2, RFC 9700 section 4.1.3: MUST be an absolute URL without fragment",
        { ...publicDocument, redirect_uris: ["https://a.example/", uri] },
        "ERR_CLIENT_DOCUMENT",
      ],
    ),
    ...["javascript:alert(1)", "data:text/html,x", "JavaScript:alert(1)", "file:///etc/passwd"].flatMap(
      (uri): typeof rows => [
        [
          "draft 02 section 8.6: only known schemes are allowed",
          { ...publicDocument, redirect_uris: [uri] },
          "ERR_CLIENT_DOCUMENT",
        ],
        [
          "draft 02 section 8.6: only known schemes are allowed",
          { ...publicDocument, logo_uri: uri },
          "ERR_CLIENT_DOCUMENT",
        ],
        [
          "draft 02 section 8.6: only known schemes are allowed",
          { ...publicDocument, client_uri: uri },
          "ERR_CLIENT_DOCUMENT",
        ],
      ],
    ),
    [
      "RFC 8252 section 7.1: a private-use scheme",
      { ...publicDocument, redirect_uris: ["com.example:/callback"] },
      "accepted",
    ],
    [
      "RFC 7591 section 2: members MUST have the right types",
      { ...publicDocument, scope: ["a"] },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "RFC 7591 section 2: members MUST have the right types",
      { ...publicDocument, grant_types: "authorization_code" },
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "RFC 7591 section 2: members MUST have the right types",
      { ...publicDocument, token_endpoint_auth_method: 1 },
      "ERR_CLIENT_DOCUMENT",
    ],
    ...["token_endpoint_auth_method", "token_endpoint_auth_signing_alg", "jwks_uri", "logo_uri"].map(
      (name): (typeof rows)[number] => [
        "RFC 7591 section 2: members MUST have the right types, even if they are empty lists",
        { ...publicDocument, [name]: [] },
        "ERR_CLIENT_DOCUMENT",
      ],
    ),
    ["RFC 7517 section 5: an empty list is not a JWK Set", { ...own, jwks: [] }, "ERR_CLIENT_DOCUMENT"],
    ["RFC 7591 section 2: an empty list of grant types", { ...publicDocument, grant_types: [] }, "accepted"],
    [
      "RFC 7592 section 2.2: null is treated as an absent member",
      { ...publicDocument, logo_uri: null, jwks: null, scope: null },
      "accepted",
    ],
    [
      "an empty string is treated as an absent member",
      { ...publicDocument, token_endpoint_auth_methods_supported: "", jwks: "", logo_uri: "" },
      "accepted",
    ],
    ["no method in common", { ...publicDocument, token_endpoint_auth_method: "tls_client_auth" }, "ERR_CLIENT_METHOD"],
    [
      "no algorithm in common",
      { ...confidentialDocument, token_endpoint_auth_signing_alg: "ES384" },
      "ERR_CLIENT_METHOD",
    ],
    ["MCP: MUST be valid JSON", '{"client_id":', "ERR_CLIENT_DOCUMENT"],
    ["MCP: MUST be valid JSON", "[]", "ERR_CLIENT_DOCUMENT"],
    ["MCP: MUST be valid JSON", "null", "ERR_CLIENT_DOCUMENT"],
    ["draft 00 section 6.6, draft 02 section 8.7: at most 5 kB", { ...publicDocument, x: long }, "accepted"],
    [
      "draft 00 section 6.6, draft 02 section 8.7: at most 5 kB",
      { ...publicDocument, x: `${long}x` },
      "ERR_FETCH_TOO_LARGE",
    ],
    [
      "no __proto__ member, because a program may copy the members",
      JSON.stringify(publicDocument).replace("{", '{"__proto__":{"client_secret":"x"},'),
      "ERR_CLIENT_DOCUMENT",
    ],
    [
      "no __proto__ member at any depth",
      JSON.stringify(publicDocument).replace("{", '{"x":[{"__proto__":null}],'),
      "ERR_CLIENT_DOCUMENT",
    ],
    ["at most 8 levels", { ...publicDocument, x: nested(7) }, "accepted"],
    ["at most 8 levels", { ...publicDocument, x: nested(8) }, "ERR_CLIENT_DOCUMENT"],
    ["at most 100 members", { ...publicDocument, x: Array(101).fill(1) }, "ERR_CLIENT_DOCUMENT"],
  ];
  for (const [index, [source, document, expect]] of rows.entries()) {
    test(`${index}: ${source}: ${JSON.stringify(document).slice(0, 60)}: ${expect}`, async () => {
      const { resolve } = documented(documentReply(document));
      assert.equal(await verdict(resolve(documentUrl)), expect);
    });
  }
});

describe("responses", () => {
  const body = JSON.stringify(publicDocument);
  const type = { "Content-Type": "application/json" };
  const rows: [source: string, script: Script, expect: string][] = [
    ["draft 02 section 5: the status MUST be 200", reply(200, body, type), "accepted"],
    ...[201, 203, 206, 400, 401, 403, 404, 429, 500].map((status): (typeof rows)[number] => [
      "draft 02 section 5: MUST treat all other statuses as errors",
      reply(status, body, type),
      "ERR_FETCH_STATUS",
    ]),
    ["draft 02 section 5: MUST treat all other statuses as errors", reply(304), "ERR_FETCH_STATUS"],
    ["a 410 withdraws the client", reply(410, body, type), "ERR_CLIENT_WITHDRAWN"],
    ...[301, 302, 303, 307, 308].map((status): (typeof rows)[number] => [
      "draft 02 section 5: MUST NOT follow redirects",
      (request) =>
        request.url === documentUrl
          ? new Response(null, { status, headers: { Location: "https://client.example/other.json" } })
          : new Response(body, { headers: type }),
      "ERR_FETCH_REDIRECT",
    ]),
    [
      "draft 00 section 4.1, draft 02 section 4: the media type may be application/…+json",
      documentReply(body, { "Content-Type": "application/ld+json" }),
      "accepted",
    ],
    [
      "the media type may have parameters and any case",
      documentReply(body, { "Content-Type": "Application/JSON; charset=utf-8" }),
      "accepted",
    ],
    [
      "draft 00 section 4.1, draft 02 section 4: the media type MUST be JSON",
      documentReply(body, { "Content-Type": "text/html" }),
      "ERR_FETCH_BODY",
    ],
    [
      "draft 00 section 4.1, draft 02 section 4: the media type MUST be JSON",
      documentReply(body, { "Content-Type": "text/x+json" }),
      "ERR_FETCH_BODY",
    ],
    [
      "draft 00 section 4.1, draft 02 section 4: the media type MUST be JSON",
      documentReply(body, { "Content-Type": "application/+json" }),
      "ERR_FETCH_BODY",
    ],
    [
      "RFC 8259 section 8.1: the document MUST be UTF-8",
      reply(200, new Uint8Array([0x22, 0xff, 0x22]), type),
      "ERR_FETCH_BODY",
    ],
  ];
  for (const [index, [source, script, expect]] of rows.entries()) {
    test(`${index}: ${source}: ${expect}`, async () => {
      const { resolve, origin } = documented(script);
      assert.equal(await verdict(resolve(documentUrl)), expect);
      assert.equal(origin.requests.length, 1);
      const [request] = origin.requests;
      assert.deepEqual([request?.headers["accept"], request?.init.redirect], ["application/json", "manual"]);
    });
  }

  for (const [source, first] of [
    [
      "draft 00 section 4.4, draft 02 section 5.2: MUST NOT cache error responses",
      reply(500, null, { "Cache-Control": "max-age=300" }),
    ],
    [
      "draft 00 section 4.4, draft 02 section 5.2: MUST NOT cache invalid documents",
      documentReply("{}", { "Cache-Control": "max-age=300" }),
    ],
    [
      "draft 00 section 4.4, draft 02 section 5.2: MUST NOT cache malformed documents",
      documentReply("{", { "Cache-Control": "max-age=300" }),
    ],
  ] as const) {
    test(`${source}: the next request is sent 20 s later; until then, calls fail with a specific error code`, async () => {
      const { resolve, origin, clock } = documented(first);
      const failure = await verdict(resolve(documentUrl));
      origin.script = documentReply(publicDocument);
      await clock.advance(19_999);
      const paced = await resolve(documentUrl).catch(
        (error: unknown) => error as Error & { retryAfterSeconds: number },
      );
      assert.deepEqual(
        [(paced as { code?: string }).code, (paced as { retryAfterSeconds?: number }).retryAfterSeconds],
        ["ERR_CLIENT_RETRY_LATER", 1],
      );
      assert.equal((paced as { cause?: { code?: string } }).cause?.code, failure);
      await clock.advance(1);
      assert.equal(await verdict(resolve(documentUrl)), "accepted");
      assert.equal(origin.requests.length, 2);
    });
  }
});

describe("redirect URIs: MUST match exactly (draft 00 section 4.5, draft 02 section 4.2), except for the port on loopback (RFC 8252 section 7.3)", () => {
  const registered = [
    "https://client.example/callback",
    "http://localhost/callback",
    "http://127.0.0.1/callback",
    "http://[::1]:80/callback",
    "com.example:/callback",
  ];
  const rows: [requested: string, expect: boolean][] = [
    ...registered.map((uri): (typeof rows)[number] => [uri, true]),
    ["http://localhost:58135/callback", true],
    ["http://127.0.0.1:1/callback", true],
    ["http://[::1]:65535/callback", true],
    ["http://[::1]/callback", true],
    ["https://client.example:8443/callback", false],
    ["https://client.example:443/callback", false],
    ["https://client.example/callback/", false],
    ["https://client.example/callback?a=b", false],
    ["https://client.example/Callback", false],
    ["https://CLIENT.example/callback", false],
    ["https://localhost/callback", false],
    ["http://localhost:58135/other", false],
    ["http://localhost:58135/callback?a", false],
    ["http://localhost:58135/callback#a", false],
    ["http://localhost:/callback", false],
    ["http://localhost:123456/callback", false],
    ["http://localhost:65536/callback", false],
    ["http://localhost:80@evil.example/callback", false],
    ["http://localhost.evil.example/callback", false],
    ["http://127.0.0.1.evil.example/callback", false],
    ["http://127.0.0.2/callback", false],
    ["http://user@localhost/callback", false],
    ["http://LOCALHOST/callback", false],
    ["com.example://callback", false],
    ["", false],
  ];
  for (const [requested, expect] of rows)
    test(`${requested}: ${expect}`, () => assert.equal(isRegisteredRedirectUri(requested, registered), expect));
});
