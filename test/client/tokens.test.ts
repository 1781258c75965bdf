import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { type ClientKeyMetadata, createClientVerifier } from "../../src/index.ts";
import { read, verdict } from "../token/compact.ts";
import { type Kind, type Row, client, clientId, issuer, kinds, now, tokenOf, verifier } from "./client.ts";

const ofAMinute = { maxLifetimeSeconds: 60 };
const tokenEndpoint = `${issuer}/token`;

const issuerRule = "RFC 7519 section 4.1.1, RFC 7523 section 3, item 1";
const audienceRule = "RFC 7519 section 4.1.3, RFC 7523 section 3, item 3";
const expiry = "RFC 7519 section 4.1.4, RFC 7523 section 3, item 4";
const skew = "FAPI 2.0 Security Profile section 5.3.2.1";
const audience = "draft-ietf-oauth-rfc7523bis section 4, CVE-2025-27370";
const lifetime = "FAPI 2.0 Message Signing section 5.3.1";

const both: Row[] = [
  [issuerRule, "iss is missing", { iss: undefined }, "ERR_TOKEN_CLAIM"],
  [issuerRule, "iss is a different client", { iss: "client-2" }, "ERR_TOKEN_CLAIM"],
  [issuerRule, "iss differs in case", { iss: "Client-1" }, "ERR_TOKEN_CLAIM"],
  [issuerRule, "iss is a list", { iss: [clientId] }, "ERR_TOKEN_CLAIM"],
  [issuerRule, "iss is the provider", { iss: issuer }, "ERR_TOKEN_CLAIM"],
  [audienceRule, "aud is missing", { aud: undefined }, "ERR_TOKEN_CLAIM"],
  [audienceRule, "aud is a different provider", { aud: "https://other.example" }, "ERR_TOKEN_CLAIM"],
  [audienceRule, "aud is a list that contains only the provider", { aud: [issuer] }, "accepted"],
  [audienceRule, "aud is a list without the provider", { aud: ["https://x.example"] }, "ERR_TOKEN_CLAIM"],
  [audienceRule, "aud is the token endpoint, which is not configured", { aud: tokenEndpoint }, "ERR_TOKEN_CLAIM"],
  [
    audienceRule,
    "aud is the configured token endpoint",
    { aud: tokenEndpoint },
    "accepted",
    { audiences: [tokenEndpoint] },
  ],
  [
    audienceRule,
    "aud is the issuer, although a token endpoint is configured",
    { aud: issuer },
    "accepted",
    { audiences: [tokenEndpoint] },
  ],
  [expiry, "exp is missing", { exp: undefined }, "ERR_TOKEN_CLAIM"],
  [expiry, "exp is a string", { exp: String(now + 60) }, "ERR_TOKEN_CLAIM"],
  [expiry, "exp is now", { exp: now }, "ERR_TOKEN_EXPIRED"],
  [expiry, "exp is in a second", { exp: now + 1 }, "accepted"],
  [expiry, "exp is within the clock tolerance", { exp: now - 4 }, "accepted", { clockToleranceSeconds: 5 }],
  [expiry, "exp is outside the clock tolerance", { exp: now - 5 }, "ERR_TOKEN_EXPIRED", { clockToleranceSeconds: 5 }],
  [expiry, "exp is in an hour", { exp: now + 3_600 }, "accepted"],
  [expiry, "exp is in more than an hour", { exp: now + 3_601 }, "ERR_TOKEN_CLAIM"],
  [expiry, "exp is beyond the configured lifetime", { exp: now + 61 }, "ERR_TOKEN_CLAIM", ofAMinute],
  [expiry, "exp is at the end of the configured lifetime", { exp: now + 60 }, "accepted", ofAMinute],
  [
    expiry,
    "exp is beyond the configured lifetime, but within the clock tolerance",
    { exp: now + 65 },
    "accepted",
    { maxLifetimeSeconds: 60, clockToleranceSeconds: 5 },
  ],
  [expiry, "exp is in the far future", { exp: 1e300 }, "ERR_TOKEN_CLAIM"],
  ["RFC 7519 section 4.1.5, RFC 7523 section 3, item 5", "nbf is now", { nbf: now }, "accepted"],
  ...["nbf", "iat"].flatMap((name): Row[] => [
    [skew, `${name} is in ten seconds`, { [name]: now + 10 }, "accepted"],
    [skew, `${name} is in eleven seconds`, { [name]: now + 11 }, "ERR_TOKEN_CLAIM"],
    [skew, `${name} is within the clock tolerance`, { [name]: now + 30 }, "accepted", { clockToleranceSeconds: 30 }],
    [
      skew,
      `${name} is outside the clock tolerance`,
      { [name]: now + 31 },
      "ERR_TOKEN_CLAIM",
      { clockToleranceSeconds: 30 },
    ],
    [skew, `${name} is in a minute`, { [name]: now + 60, exp: now + 90 }, "accepted", { clockToleranceSeconds: 300 }],
    [
      skew,
      `${name} is more than a minute in the future`,
      { [name]: now + 61, exp: now + 90 },
      "ERR_TOKEN_CLAIM",
      { clockToleranceSeconds: 300 },
    ],
  ]),
  [skew, "exp was a second ago, although nbf may be ten seconds ahead", { exp: now - 1 }, "ERR_TOKEN_EXPIRED"],
  ["RFC 7519 section 4.1.6, RFC 7523 section 3, item 6", "iat was long ago", { iat: 1 }, "accepted"],
  ["RFC 7519 section 4.1.6, RFC 7523 section 3, item 6", "iat is a string", { iat: "now" }, "ERR_TOKEN_CLAIM"],
  [
    "RFC 7519 section 4.3, RFC 7523 section 3, item 8",
    "contains other claims",
    { "https://example.org/claim": [1] },
    "accepted",
  ],
  ["RFC 7519 section 4.1.7", "jti is a number", { jti: 7 }, "ERR_TOKEN_CLAIM"],
  ["RFC 7519 section 4.1.7", "jti is empty", { jti: "" }, "ERR_TOKEN_CLAIM"],
  ["RFC 7519 section 4.1.7", "jti is null", { jti: null }, "ERR_TOKEN_CLAIM"],
];

const rows: Record<Kind, Row[]> = {
  clientAssertion: [
    ["RFC 7523 section 3, item 2 B", "sub is the client", {}, "accepted"],
    ["RFC 7523 section 3, item 2", "sub is missing", { sub: undefined }, "ERR_TOKEN_CLAIM"],
    ["RFC 7523 section 3, item 2 B", "sub is a user", { sub: "alice" }, "ERR_TOKEN_CLAIM"],
    ["RFC 7523 section 3, item 2 B", "sub is a different client", { sub: "client-2" }, "ERR_TOKEN_CLAIM"],
    ["RFC 7523 section 3, item 2 B", "sub is a list", { sub: [clientId] }, "ERR_TOKEN_CLAIM"],
    ["OpenID Connect Core 1.0 section 9", "jti is missing", { jti: undefined }, "ERR_TOKEN_CLAIM"],
    [audience, "aud also contains a different provider", { aud: [issuer, "https://x.example"] }, "ERR_TOKEN_CLAIM"],
    [audience, "aud also contains the token endpoint", { aud: [issuer, tokenEndpoint] }, "ERR_TOKEN_CLAIM"],
    [
      audience,
      "aud also contains the configured token endpoint",
      { aud: [issuer, tokenEndpoint] },
      "accepted",
      { audiences: [tokenEndpoint] },
    ],
    [
      audience,
      "aud contains the token endpoints of two providers, one of which is configured",
      { aud: [tokenEndpoint, "https://x.example/token"] },
      "ERR_TOKEN_CLAIM",
      { audiences: [tokenEndpoint] },
    ],
    [audience, "aud contains a number", { aud: [issuer, 7] }, "ERR_TOKEN_CLAIM"],
    ...both,
  ],
  requestObject: [
    [
      "RFC 9101 section 4",
      "contains authorization request parameters",
      { scope: "openid", state: "x", nonce: "y" },
      "accepted",
    ],
    ["RFC 9101 section 6.3", "client_id is missing", { client_id: undefined }, "ERR_TOKEN_CLAIM"],
    ["RFC 9101 section 6.3", "client_id is a different client", { client_id: "client-2" }, "ERR_TOKEN_CLAIM"],
    ["RFC 9101 section 6.3", "client_id is a list", { client_id: [clientId] }, "ERR_TOKEN_CLAIM"],
    ["RFC 9101 section 4", "contains request", { request: "x" }, "ERR_TOKEN_CLAIM"],
    ["RFC 9101 section 4", "contains request_uri", { request_uri: "urn:x" }, "ERR_TOKEN_CLAIM"],
    ["RFC 9101 section 4", "contains request: null", { request: null }, "ERR_TOKEN_CLAIM"],
    ["RFC 9101 section 10.8", "sub is the client, as in an assertion", { sub: clientId }, "ERR_TOKEN_CLAIM"],
    ["RFC 9101 section 10.8", "sub is a user", { sub: "alice" }, "accepted"],
    ["RFC 9101 section 4", "jti is missing", { jti: undefined }, "accepted"],
    [lifetime, "aud is a list that contains the provider", { aud: ["https://x.example", issuer] }, "accepted"],
    [lifetime, "nbf was an hour ago", { nbf: now + 1 - 3_600, exp: now + 1 }, "accepted"],
    [lifetime, "nbf was more than an hour ago", { nbf: now - 3_600, exp: now + 1 }, "ERR_TOKEN_CLAIM"],
    [lifetime, "exp is an hour after nbf", { nbf: now - 60, exp: now + 3_540 }, "accepted"],
    [lifetime, "exp is more than an hour after nbf", { nbf: now - 60, exp: now + 3_541 }, "ERR_TOKEN_CLAIM"],
    [lifetime, "exp is as long after nbf as configured", { nbf: now - 60, exp: now }, "ERR_TOKEN_EXPIRED", ofAMinute],
    [
      lifetime,
      "exp is further after nbf than configured",
      { nbf: now - 60, exp: now + 1 },
      "ERR_TOKEN_CLAIM",
      ofAMinute,
    ],
    ...both,
  ],
};

for (const kind of kinds) {
  describe(kind, () => {
    for (const [source, name, claims, expect, options] of rows[kind]) {
      test(`${source}: ${name}: ${expect}`, async () => {
        assert.equal(await verdict(verifier(options)[kind](tokenOf(kind, claims), client)), expect);
      });
    }

    const own = { clientAssertion: "client-authentication+jwt", requestObject: "oauth-authz-req+jwt" }[kind];
    const types: [typ: unknown, expect: string][] = [
      [undefined, "accepted"],
      ...["JWT", "jwt", "application/jwt", own, own.toUpperCase(), `application/${own}`, `Application/${own}`].map(
        (typ): [string, string] => [typ, "accepted"],
      ),
      ...[
        "dpop+jwt",
        "logout+jwt",
        "at+jwt",
        "application/at+jwt",
        "secevent+jwt",
        "id_token+jwt",
        "entity-statement+jwt",
      ].map((typ): [string, string] => [typ, "ERR_TOKEN_TYP"]),
      ["client-authentication+jwt", kind === "clientAssertion" ? "accepted" : "ERR_TOKEN_TYP"],
      ["oauth-authz-req+jwt", kind === "requestObject" ? "accepted" : "ERR_TOKEN_TYP"],
      ...["", "JOSE", "text/jwt", "application/x/jwt", `${own} `, null, 7, ["JWT"]].map((typ): [unknown, string] => [
        typ,
        "ERR_TOKEN_TYP",
      ]),
    ];
    for (const [typ, expect] of types) {
      test(`RFC 8725 section 3.11: typ ${inspect(typ)}: ${expect}`, async () => {
        assert.equal(await verdict(verifier()[kind](tokenOf(kind, {}, { typ }), client)), expect);
      });
    }

    test("returns the header and the claims", async () => {
      const token = tokenOf(kind, { extra: 1 });
      assert.deepEqual(await verifier()[kind](token, client), read(token));
    });

    // A sample of the checks of `verify`, which are all in test/token/verify.test.ts.
    const [head, body, tail] = tokenOf(kind).split(".");
    const refused: [source: string, name: string, token: string, code: string][] = [
      ["RFC 7523 section 3, item 9", "no signature", `${head}.${body}.`, "ERR_TOKEN_SIGNATURE"],
      ["RFC 7523 section 3, item 10", "not a JWT", "assertion", "ERR_TOKEN_MALFORMED"],
      ["RFC 9101 section 6.1", "a JWE", [head, "", body, body, tail].join("."), "ERR_TOKEN_MALFORMED"],
      ["RFC 7515 section 4.1.11", "a critical parameter", tokenOf(kind, {}, { crit: ["x"], x: 1 }), "ERR_TOKEN_CRIT"],
    ];
    for (const [source, name, token, code] of refused) {
      test(`${source}: ${name}: ${code}`, async () => {
        const verifying = verifier()[kind](token, client);
        assert.equal(await verdict(verifying), code);
        await assert.rejects(verifying, { name: "TokenError", retryable: false });
      });
    }
  });
}

test("does not accept one kind of token as the other kind", async () => {
  const { clientAssertion, requestObject } = verifier();
  assert.equal(await verdict(requestObject(tokenOf("clientAssertion"), client)), "ERR_TOKEN_CLAIM");
  assert.equal(await verdict(clientAssertion(tokenOf("requestObject"), client)), "ERR_TOKEN_CLAIM");
  // Not even with the claims of both.
  const both = tokenOf("requestObject", { sub: clientId });
  assert.equal(await verdict(requestObject(both, client)), "ERR_TOKEN_CLAIM");
});

describe("rejects invalid options and clients", () => {
  const wrong: object[] = [
    { issuer: "" },
    { issuer: "https://op.example\n" },
    { audiences: [""] },
    { audiences: [undefined] },
    { maxKeySets: 0 },
    { maxLifetimeSeconds: 0 },
    { clockToleranceSeconds: 301 },
  ];
  for (const options of wrong) {
    test(inspect(options), () => {
      const refusal = { name: "ConfigError", code: "ERR_OPTION_INVALID" };
      assert.throws(() => createClientVerifier({ issuer, ...options }), refusal);
    });
  }

  for (const none of [undefined, null, "client-1"]) {
    test(`no client: ${inspect(none)}`, async () => {
      for (const kind of kinds) {
        const verifying = verifier()[kind](tokenOf(kind), none as unknown as ClientKeyMetadata);
        assert.equal(await verdict(verifying), "ERR_OPTION_INVALID");
      }
    });
  }

  for (const clientId of ["", undefined]) {
    test(`a client without an id: ${inspect(clientId)}`, async () => {
      const token = tokenOf("clientAssertion", { iss: clientId, sub: clientId });
      const verifying = verifier().clientAssertion(token, { ...client, clientId: clientId as string });
      assert.equal(await verdict(verifying), "ERR_OPTION_INVALID");
    });
  }
});

test("uses the machine's clock by default", async () => {
  const { clientAssertion } = createClientVerifier({ issuer });
  const exp = Math.floor(Date.now() / 1000);
  assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion", { exp: exp + 30 }), client)), "accepted");
  assert.equal(
    await verdict(clientAssertion(tokenOf("clientAssertion", { exp: exp - 1 }), client)),
    "ERR_TOKEN_EXPIRED",
  );
});
