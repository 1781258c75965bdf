import assert from "node:assert/strict";
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
} from "../../src/index.ts";
import { ecKey } from "../support/keys.ts";
import { encode, read, verdict } from "../token/compact.ts";
import { clientId, clock, issuer as audience, now, verifier } from "./client.ts";

// The other side of createClientVerifier: what a client signs is what it takes, and nobody else's.

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

test("an assertion says what RFC 7523 section 3 asks for, and no more", async () => {
  const { header, claims } = read(await createClientAssertion(own, usual));
  assert.deepEqual(header, { alg: "ES256", kid: "a", typ: "client-authentication+jwt" });
  const { jti, ...others } = claims;
  assert.deepEqual(others, { iss: clientId, sub: clientId, aud: audience, iat: now, nbf: now, exp: now + 60 });
  assert.match(String(jti), /^[\w-]{36}$/);
});

test("a request object says what RFC 9101 section 4 and FAPI 2.0 Message Signing section 5.3.1 ask for", async () => {
  const token = await createRequestObject(own, { ...usual, parameters, lifetimeSeconds: 300 });
  const { header, claims } = read(token);
  assert.deepEqual(header, { alg: "ES256", kid: "a", typ: "oauth-authz-req+jwt" });
  const { jti: _jti, ...others } = claims;
  const times = { iat: now, nbf: now, exp: now + 300 };
  assert.deepEqual(others, { ...parameters, client_id: clientId, iss: clientId, aud: audience, ...times });
});

test("a provider takes each of them, once, and from this client alone", async () => {
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

test("the key that is active when it is asked for signs", async () => {
  const keys = await provide();
  const b = { kid: "b", signer: await localSigner(ecKey("b")) };
  await keys.update({ keyset: [b] });
  assert.equal(read(await createClientAssertion(keys, usual)).header["kid"], "b");
});

test("the policy of the keys holds, and whether this process may sign", async () => {
  const short = await provide({ maxTokenLifetimeSeconds: 30 });
  assert.equal(await verdict(createClientAssertion(short, usual)), "ERR_CLAIMS_INVALID");
  assert.equal(await verdict(createClientAssertion(short, { ...usual, lifetimeSeconds: 30 })), "accepted");
  const stale = await provide({
    permit: () => () => {
      throw new Error("stale");
    },
  });
  await assert.rejects(createClientAssertion(stale, usual), /stale/);
});

test("a key of a provider signs for a client only where that is said", async () => {
  const { kid, sign } = await own.signingKey();
  const input = Buffer.from(`${encode({ alg: "ES256", kid })}.${encode({ iss: clientId })}`);
  await assert.rejects(sign(input, { lifetimeSeconds: 60 }), { code: "ERR_CLAIMS_INVALID", message: /^claim "iss"/ });
});

describe("what is missing or wrong is refused", () => {
  const rows: [options: object, code: string][] = [
    [{ clientId: undefined }, "ERR_OPTION_INVALID"],
    [{ clientId: "" }, "ERR_OPTION_INVALID"],
    [{ audience: null }, "ERR_OPTION_INVALID"],
    [{ audience: ["https://op.example"] }, "ERR_OPTION_INVALID"],
    [{ lifetimeSeconds: 301 }, "ERR_OPTION_INVALID"],
    [{ lifetimeSeconds: 0 }, "ERR_OPTION_INVALID"],
    [{ lifetimeSeconds: 1.5 }, "ERR_OPTION_INVALID"],
    [{ clock: {} }, "ERR_OPTION_INVALID"],
    [{ issuer: "https://op.example" }, "ERR_OPTION_UNKNOWN"],
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
    [undefined, "ERR_OPTION_INVALID"],
    ["scope=openid", "ERR_OPTION_INVALID"],
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
