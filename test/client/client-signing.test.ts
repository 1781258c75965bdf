import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import {
  type ClientAssertionOptions,
  type ProviderOptions,
  type RequestObjectOptions,
  createClientAssertion,
  createProvider,
  createRequestObject,
  localSigner,
  type ClientKeyMetadata,
} from "../../src/index.ts";
import { keySource } from "../support/key-source.ts";
import { ecKey, type PrivateJwk, rsaKey, withoutPrivate } from "../support/keys.ts";
import { encode, read, verdict, type Signature, compact, hmac, noSignature, signature } from "../token/compact.ts";
import {
  clientId,
  clock,
  issuer as audience,
  now,
  verifier,
  client,
  entry,
  validClaims,
  kinds,
  privateKeys,
  tokenOf,
} from "./client.ts";

// Client tokens that createClientAssertion and createRequestObject sign and createClientVerifier accepts.

const provide = async (options: ProviderOptions = {}) =>
  createProvider({
    issuer: "https://client.example",
    keyset: [{ kid: "a", signer: await localSigner(ecKey("a")) }],
    discovery: false,
    maxTokenLifetimeSeconds: 300,
    clock,
    ...options,
  });
const own = await provide();
const jwks = (await (await own.fetch(new Request(own.jwksUri))).json()) as { keys: object[] };
const usual = { clientId, audience, clock };
const parameters = { response_type: "code", redirect_uri: "https://client.example/cb", scope: "openid", max_age: 60 };

test("an assertion has exactly the claims that RFC 7523 section 3 requires", async () => {
  const { header, claims } = read(await createClientAssertion(own, usual));
  assert.deepEqual(header, { alg: "ES256", kid: "a", typ: "client-authentication+jwt" });
  const { jti, ...others } = claims;
  assert.deepEqual(others, { iss: clientId, sub: clientId, aud: audience, iat: now, nbf: now, exp: now + 60 });
  assert.match(String(jti), /^[\w-]{36}$/);
});

test("a request object has the claims that RFC 9101 section 4 and FAPI 2.0 Message Signing section 5.3.1 require", async () => {
  const token = await createRequestObject(own, { ...usual, parameters, lifetimeSeconds: 300 });
  const { header, claims } = read(token);
  assert.deepEqual(header, { alg: "ES256", kid: "a", typ: "oauth-authz-req+jwt" });
  const { jti: _jti, ...others } = claims;
  const times = { iat: now, nbf: now, exp: now + 300 };
  assert.deepEqual(others, { ...parameters, client_id: clientId, iss: clientId, aud: audience, ...times });
});

test("a provider accepts each assertion and each request object only once, and only from the client that signed it", async () => {
  const { clientAssertion, requestObject } = verifier();
  const client = { clientId, jwks };
  const assertion = await createClientAssertion(own, usual);
  assert.equal(await verdict(clientAssertion(assertion, { clientId: "another", jwks })), "ERR_TOKEN_CLAIM");
  assert.equal(await verdict(clientAssertion(assertion, client)), "accepted");
  assert.equal(await verdict(clientAssertion(assertion, client)), "ERR_TOKEN_REPLAYED");
  assert.equal(await verdict(clientAssertion(await createClientAssertion(own, usual), client)), "accepted");
  const request = await createRequestObject(own, { ...usual, parameters });
  assert.equal(await verdict(clientAssertion(request, client)), "ERR_TOKEN_CLAIM");
  assert.equal(await verdict(requestObject(request, client)), "accepted");
  assert.equal(await verdict(requestObject(assertion, client)), "ERR_TOKEN_CLAIM");
});

test("signs with the key that is active at the time", async () => {
  const keys = await provide();
  const b = { kid: "b", signer: await localSigner(ecKey("b")) };
  await keys.update({ keyset: [b] });
  assert.equal(read(await createClientAssertion(keys, usual)).header["kid"], "b");
});

const permit = () => () => {
  throw new Error("stale");
};

test("respects the keys' policy and does not sign if the process is stale", async () => {
  const short = await provide({ maxTokenLifetimeSeconds: 30 });
  assert.equal(await verdict(createClientAssertion(short, usual)), "ERR_CLAIMS_INVALID");
  assert.equal(await verdict(createClientAssertion(short, { ...usual, lifetimeSeconds: 30 })), "accepted");
  const stale = await createProvider({
    keys: keySource("https://op.example", [{ kid: "a", signer: await localSigner(ecKey("a")) }], { permit }),
  });
  await assert.rejects(createClientAssertion(stale, usual), /stale/);
});

test("rejects a provider's signing key as a client's key", async () => {
  const { kid, sign } = await own.signingKey();
  const input = Buffer.from(`${encode({ alg: "ES256", kid })}.${encode({ iss: clientId })}`);
  await assert.rejects(sign(input, { lifetimeSeconds: 60 }), { code: "ERR_CLAIMS_INVALID", message: /^claim "iss"/ });
});

describe("rejects invalid options", () => {
  const rows: [options: object, code: string][] = [
    [{ clientId: "" }, "ERR_OPTION_INVALID"],
    [{ lifetimeSeconds: 301 }, "ERR_OPTION_INVALID"],
    [{ lifetimeSeconds: 0 }, "ERR_OPTION_INVALID"],
    [{ lifetimeSeconds: 1.5 }, "ERR_OPTION_INVALID"],
  ];
  for (const [options, code] of rows) {
    test(inspect(options), async () => {
      const given = { ...usual, ...options } as ClientAssertionOptions;
      assert.equal(await verdict(createClientAssertion(own, given)), code);
      assert.equal(await verdict(createRequestObject(own, { ...given, parameters })), code);
    });
  }

  const wrong = ["iss", "sub", "aud", "client_id", "exp", "nbf", "iat", "jti", "request", "request_uri"];
  const parameterRows: [parameters: unknown, code: string][] = [
    ...wrong.map((name): [object, string] => [{ [name]: "x" }, "ERR_CLAIMS_INVALID"]),
    [{ claims: 1n }, "ERR_CLAIMS_INVALID"],
    [new URLSearchParams("scope=openid"), "ERR_CLAIMS_INVALID"],
    [{ toJSON: () => ({ aud: "https://elsewhere.example" }) }, "ERR_CLAIMS_INVALID"],
  ];
  for (const [parameters, code] of parameterRows) {
    test(`parameters ${inspect(parameters)}`, async () => {
      const given = { ...usual, parameters } as RequestObjectOptions;
      assert.equal(await verdict(createRequestObject(own, given)), code);
    });
  }
});

const clientWith = (...keys: object[]): ClientKeyMetadata => ({ clientId, jwks: { keys } });
const { RS256: rsa, ES256: ec } = privateKeys as Record<"RS256" | "ES256", PrivateJwk>;

for (const kind of kinds) {
  const forged = (alg: string, kid: string, sign: Signature): string => compact({ alg, kid }, validClaims(kind), sign);

  describe(`${kind}: the allow-list (endpoint specification, section 2, rule 5)`, () => {
    for (const alg of ["RS256", "PS256", "ES256", "EdDSA"]) {
      test(`${alg} is accepted`, async () => {
        assert.equal(await verdict(verifier()[kind](tokenOf(kind, {}, {}, alg), client)), "accepted");
      });

      test(`${alg} is accepted from a key that declares it`, async () => {
        const declared = { ...entry(alg), alg, use: "sig", key_ops: ["verify"] };
        assert.equal(await verdict(verifier()[kind](tokenOf(kind, {}, {}, alg), clientWith(declared))), "accepted");
      });
    }

    const spki = createPublicKey({ key: withoutPrivate(rsa), format: "jwk" }).export({ type: "spki", format: "pem" });
    const publicText = JSON.stringify(withoutPrivate(rsa));
    const refused: [name: string, token: string][] = [
      ["none", forged("none", "ES256", noSignature)],
      ["none with a signature", forged("none", "ES256", signature("ES256", ec))],
      ["nOnE", forged("nOnE", "ES256", noSignature)],
      ["HS256 with the public key as PEM", forged("HS256", "RS256", hmac("HS256", spki.toString()))],
      ["HS256 with the public key as JSON", forged("HS256", "RS256", hmac("HS256", publicText))],
      ["HS256 with an empty secret", forged("HS256", "RS256", hmac("HS256", ""))],
      ["HS512", forged("HS512", "RS256", hmac("HS512", "secret"))],
      ...["RS384", "RS512", "PS384", "PS512"].map((alg): [string, string] => [
        alg,
        forged(alg, alg.startsWith("RS") ? "RS256" : "PS256", signature(alg, rsa)),
      ]),
      ...["ES384", "ES512"].map((alg): [string, string] => [alg, tokenOf(kind, {}, {}, alg)]),
      ["Ed25519 (the other name of EdDSA)", tokenOf(kind, {}, { alg: "Ed25519" }, "EdDSA")],
      ["es256", tokenOf(kind, {}, { alg: "es256" })],
    ];
    for (const [name, token] of refused) {
      test(`${name} is rejected`, async () => {
        assert.equal(await verdict(verifier()[kind](token, client)), "ERR_TOKEN_ALG");
      });
    }

    const confused: [name: string, token: string, client: ClientKeyMetadata][] = [
      [
        "RS256 with a key that is for PS256",
        tokenOf(kind, {}, {}, "RS256"),
        clientWith({ ...entry("RS256"), alg: "PS256" }),
      ],
      ["RS256 under the kid of an EC key", forged("RS256", "ES256", signature("RS256", rsa)), client],
      ["ES256 under the kid of an RSA key", forged("ES256", "RS256", signature("ES256", ec)), client],
      ["EdDSA under the kid of an EC key", tokenOf(kind, {}, { kid: "ES256" }, "EdDSA"), client],
      ["ES256 under the kid of a P-384 key", forged("ES256", "ES384", signature("ES256", ec)), client],
    ];
    for (const [name, token, client] of confused) {
      test(`${name} is rejected`, async () => {
        assert.equal(await verdict(verifier()[kind](token, client)), "ERR_TOKEN_ALG");
      });
    }
  });
}

describe("an RSA key must be 2048 to 4096 bits long and have an exponent of at most 32 bits", () => {
  const working: [name: string, key: PrivateJwk, expect: string][] = [
    ["2047 bits", rsaKey(2047), "ERR_TOKEN_KID_UNKNOWN"],
    ["2048 bits", rsa, "accepted"],
    ["4096 bits", rsaKey(4096), "accepted"],
    ["an exponent of 2 bits", rsaKey(2048, 3), "accepted"],
    ["an exponent of 32 bits", rsaKey(2048, 4_294_967_291), "accepted"],
  ];
  for (const [name, key, expect] of working) {
    for (const alg of ["RS256", "PS256"]) {
      test(`${name}, ${alg}: ${expect}`, async () => {
        const token = compact({ alg, kid: "k" }, validClaims("clientAssertion"), signature(alg, key));
        assert.equal(await verdict(verifier().clientAssertion(token, clientWith(entry("k", key)))), expect);
      });
    }
  }
});

// Every rule for entries is in test/jwk/read.test.ts; the same code reads them.
describe("keys that cannot verify the token", () => {
  const es256 = entry("ES256");
  const rows: [name: string, keys: object[], expect: string][] = [
    ["a key for encryption", [{ ...es256, use: "enc" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a point that is not on the curve", [{ ...es256, y: ec["x"] }], "ERR_KEY_FORMAT"],
    ["two keys with one kid and type", [es256, { ...entry("ES256", ecKey("x")) }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a valid key after invalid ones", [{}, { kty: "RSA" }, { kty: "OKP", kid: "x" }, es256], "accepted"],
    ["a private key", [{ ...ec, kid: "ES256" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["no key", [], "ERR_TOKEN_KID_UNKNOWN"],
  ];
  for (const [name, keys, expect] of rows) {
    test(`${name}: ${expect}`, async () => {
      const verifying = verifier().clientAssertion(tokenOf("clientAssertion"), clientWith(...keys));
      assert.equal(await verdict(verifying), expect);
    });
  }
});
