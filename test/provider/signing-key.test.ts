import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { createServer } from "node:http";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import type { JSONWebKeySet } from "jose";
import { ExternalSigningKey, Provider as OidcProvider } from "oidc-provider";
import {
  type Provider,
  type ProviderEvent,
  type ProviderOptions,
  type Signer,
  SignerError,
  createProvider,
  localSigner,
} from "../../src/index.ts";
import type { SignInputOptions } from "../../src/sign/token/sign-input.ts";
import { keySource } from "../support/key-source.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { samplesOf } from "../support/scrape.ts";
import { simulatedClock } from "../support/simulated.ts";
import { encode, signature, verdict } from "../token/compact.ts";

// A library writes the header and the claims and receives only the signature. The rules of provider.sign apply to it, too.

const issuer = "https://op.example";
const clock = simulatedClock();
const now = Math.floor(clock.now() / 1000);
const lifetimeSeconds = 3600;

const entry = async (kid: string) => ({ kid, signer: await localSigner(ecKey(kid)) });
const provide = async (options: ProviderOptions = {}): Promise<Provider> =>
  createProvider({ issuer, keyset: [await entry("a")], maxTokenLifetimeSeconds: lifetimeSeconds, clock, ...options });

const inputOf = (header: unknown, claims: unknown): Buffer => Buffer.from(`${encode(header)}.${encode(claims)}`);
const validInput = (kid = "a"): Buffer =>
  inputOf({ alg: "ES256", kid, typ: "JWT" }, { iss: issuer, aud: "api", iat: now, exp: now + 60 });

/** Returns an input with a duplicate member at the start of one part, so that `JSON.parse` takes the later value. */
function twice(header: object, claims: object, name: string, value: unknown, part: 0 | 1): Buffer {
  const texts = [header, claims].map((member) => JSON.stringify(member));
  texts[part] = texts[part]?.replace("{", `{"${name}":${JSON.stringify(value)},`) ?? "";
  return Buffer.from(texts.map((text) => Buffer.from(text).toString("base64url")).join("."));
}

/** Returns an input without times, as in a response to an introspection (RFC 9701 section 5). */
const undated = (kid: string): Buffer => inputOf({ alg: "ES256", kid }, { iss: issuer });

/** Signs valid claims. Returns the verdict. */
async function sign({ signingKey }: Provider, options: Partial<SignInputOptions> = {}): Promise<string> {
  const { kid, sign } = await signingKey();
  return verdict(sign(validInput(kid), { lifetimeSeconds, ...options }));
}

test("returns the active key as it is published, and a signature made with that key completes a token (RFC 7515 section 5.1)", async () => {
  const provider = await provide({ keyset: [await entry("a"), await entry("b")] });
  const { kid, alg, publicJwk, sign } = await provider.signingKey();
  const set = (await (await provider.fetch(new Request(provider.jwksUri))).json()) as { keys: object[] };
  assert.deepEqual([kid, alg, publicJwk], ["a", "ES256", set.keys[0]]);
  const input = validInput();
  const token = `${input.toString()}.${Buffer.from(await sign(input, { lifetimeSeconds })).toString("base64url")}`;
  assert.equal((await provider.verify(token, { audience: "api" })).claims.exp, now + 60);
});

describe("a signing key refuses inputs that provider.sign would not sign", () => {
  const header = { alg: "ES256", kid: "a" };
  const rows: [name: string, input: unknown, message: RegExp, options?: Partial<SignInputOptions>][] = [
    ["the kid of another key", inputOf({ ...header, kid: "b" }, {}), /^header "kid" must be "a"/],
    ["no kid", inputOf({ alg: "ES256" }, {}), /^header "kid" must be "a"/],
    ["another algorithm", inputOf({ ...header, alg: "none" }, {}), /^header "alg" must be "ES256"/],
    ...["b64", "crit", "jwk", "jku", "x5c"].map((name): [string, unknown, RegExp] => [
      `a header with ${name}`,
      inputOf({ ...header, [name]: "x" }, {}),
      /must not be set by the caller$/,
    ]),
    ["a name that some parsers read as kid", inputOf({ ...header, KID: "b" }, {}), /must not be set by the caller$/],
    ["a name that some parsers read as aud", inputOf(header, { aud: "api", AUD: "admin" }), /^claim "AUD"/],
    ["another issuer", inputOf(header, { iss: "https://other.example" }), /^claim "iss"/],
    ["an empty audience", inputOf(header, { aud: "" }), /^claim "aud"/],
    ["an exp beyond the policy", inputOf(header, { exp: now + 3601 }), /^claim "exp" is 3601 seconds in the future/],
    ["an exp that has passed", inputOf(header, { exp: now }), /^claim "exp" is 0 seconds in the past/],
    [
      "an exp beyond the given lifetime",
      inputOf(header, { exp: now + 61 }),
      /^claim "exp" is later than lifetimeSeconds allows \(60 seconds\)/,
      { lifetimeSeconds: 60 },
    ],
    ["an iat tomorrow", inputOf(header, { iat: now + 86_400 }), /^claim "iat"/],
    ...[{}, { exp: now + 60 }].flatMap((claims) =>
      [3601, 0, -1, 1.5, "60", null, undefined].map((lifetimeSeconds): [string, unknown, RegExp, object] => [
        `a lifetime of ${inspect(lifetimeSeconds)} for claims with ${Object.keys(claims).length} times`,
        inputOf(header, claims),
        /^(lifetimeSeconds (must be|is 3601)|the "lifetimeSeconds" option is missing)/,
        { lifetimeSeconds },
      ]),
    ),
    ...Object.entries({ exp: now + 60, iss: issuer, "\\u0069ss": issuer, sub: "alice" }).map(
      ([name, value]): [string, unknown, RegExp] => [
        `claim ${name} twice`,
        twice(header, { iss: issuer, exp: now + 60, sub: "alice" }, name, value, 1),
        /^the payload has a duplicate member$/,
      ],
    ),
    ...["alg", "kid"].map((name): [string, unknown, RegExp] => [
      `${name} twice in the header`,
      twice(header, {}, name, "b", 0),
      /^the header has a duplicate member$/,
    ]),
    ["claims that are not an object", inputOf(header, "[]"), /^the payload is not a JSON object/],
    ["a payload that is not JSON", inputOf(header, "x"), /^the payload is not a JSON object/],
    ["a header that is not JSON", inputOf("x", {}), /^the header is not a JSON object/],
    ["a payload that is not UTF-8", Buffer.from(`${encode(header)}._w`), /^the payload is not a JSON object/],
    ["a digest", Buffer.alloc(32, 7), /^the input must be a JWT's signing input/],
    ["a document", Buffer.from('{"a":1}'), /^the input must be a JWT's signing input/],
    ["a whole token", Buffer.from(`${validInput().toString()}.x`), /^the input must be a JWT's signing input/],
    ["a line break", Buffer.from(`${validInput().toString()}\n`), /^the input must be a JWT's signing input/],
    ["no bytes", "", /^the input must be a JWT's signing input/],
    ["text", validInput().toString(), /^the input must be a JWT's signing input/],
    ["an input that is longer than verify() accepts", inputOf(header, { long: "x".repeat(16_384) }), /16384 bytes/],
  ];
  for (const [name, input, message, options] of rows) {
    test(name, async () => {
      let isCalled = false;
      const signer: Signer = {
        publicKey: withoutPrivate(ecKey("a")),
        sign: async () => ((isCalled = true), new Uint8Array(64)),
      };
      const { signingKey } = await provide({ keyset: [{ kid: "a", signer }] });
      const signing = (await signingKey()).sign(input as Uint8Array, { lifetimeSeconds, ...options });
      await assert.rejects(signing, { name: "TokenError", code: "ERR_CLAIMS_INVALID", message });
      assert.equal(isCalled, false, "the signer was called");
    });
  }
});

test("an unknown option is rejected", async () => {
  const provider = await provide();
  const unknown = { name: "ConfigError", code: "ERR_OPTION_UNKNOWN" };
  const { sign } = await provider.signingKey();
  await assert.rejects(sign(validInput(), { lifetimeSeconds, expiresIn: 60 } as SignInputOptions), unknown);
  await assert.rejects(provider.signingKey({ clientID: "app" } as { clientId?: string }), unknown);
});

describe("a signing key's signatures have the same safeguards as provider.sign", () => {
  const hanging: Signer = { publicKey: withoutPrivate(ecKey("a")), sign: () => new Promise(() => {}) };
  const keyset = [{ kid: "a", signer: hanging }];

  test("calls share one limit and one deadline with provider.sign", async () => {
    const clock = simulatedClock();
    const limits = { maxConcurrent: 1, maxQueued: 0, timeoutMs: 70 };
    const provider = await provide({ keyset, signerLimits: limits, clock });
    const first = sign(provider);
    assert.equal(await sign(provider), "ERR_SIGNER_BUSY");
    assert.equal(await verdict(provider.sign({}, { lifetimeSeconds })), "ERR_SIGNER_BUSY");
    await clock.advance(70);
    assert.equal(await first, "ERR_SIGNER_TIMEOUT");
  });

  test("the caller may abort a call", async () => {
    const aborting = new AbortController();
    const outcome = sign(await provide({ keyset }), { signal: aborting.signal });
    aborting.abort();
    assert.equal(await outcome, "ERR_SIGNER_ABORTED");
  });

  test("a signature made with a different key is rejected, every signature is counted, and failures are reported", async () => {
    const events: ProviderEvent[] = [];
    const other = signature("ES256", ecKey("other"));
    const signer: Signer = {
      publicKey: withoutPrivate(ecKey("a")),
      sign: async ({ message }) => other(Buffer.from(message)),
    };
    const provider = await provide({ keyset: [{ kid: "a", signer }], onEvent: (event) => events.push(event) });
    assert.equal(await sign(provider), "ERR_SIGNER_BAD_SIGNATURE");
    assert.deepEqual(
      events.map(({ type }) => type),
      ["signature-failed"],
    );
    await provider.update({ keyset: [await entry("b")] });
    assert.equal(await sign(provider), "accepted");
    assert.equal(samplesOf(provider.metrics())['jwksd_signatures_total{kid="b",result="ok"}'], 1);
  });
});

describe("a signing key can sign", () => {
  const replaced = { name: "SignerError", code: "ERR_SIGNER_STALE", retryable: true };

  test("while it is the active key, if there is no manager", async () => {
    const provider = await provide();
    const { sign } = await provider.signingKey();
    await provider.update({ keyset: [await entry("b"), await entry("a")] });
    await assert.rejects(sign(validInput("a"), { lifetimeSeconds }), { ...replaced, message: /no longer active/ });
    assert.equal((await provider.signingKey()).kid, "b");
    await provider.update({ keyset: [await entry("a")] });
    await sign(validInput("a"), { lifetimeSeconds });
  });

  test("only as long as its manager, if it has one, permits it, which is checked before and after signing (test/manager/check-in.test.ts)", async () => {
    let isRefused = false;
    const permit = () => () => {
      if (isRefused) throw new SignerError("ERR_SIGNER_STALE", "the key was revoked");
    };
    const local = await localSigner(ecKey("a"));
    const signing = Promise.withResolvers<void>();
    const slow: Signer = {
      publicKey: withoutPrivate(ecKey("a")),
      sign: async (input) => signing.promise.then(() => local.sign(input)),
    };
    const keys = keySource(issuer, [{ kid: "a", signer: slow }], { permit });
    const provider = await createProvider({ keys, clock });
    const undatedToken = (await provider.signingKey()).sign(undated("a"), { lifetimeSeconds });
    const dated = provider.sign({}, { lifetimeSeconds });
    isRefused = true;
    signing.resolve();
    await assert.rejects(undatedToken, replaced);
    await assert.rejects(dated, replaced);
  });
});

test("oidc-provider signs tokens with a signing key, and the provider verifies them", async (t) => {
  const server = createServer();
  const url = `http://127.0.0.1:${await listening(t, server)}`;
  const keys = await provide({ issuer: url, clock: undefined });
  const { kid, alg, publicJwk, sign } = await keys.signingKey();

  class Key extends ExternalSigningKey {
    override kid = kid;
    override alg = alg;
    override keyObject = () => createPublicKey({ key: { ...publicJwk }, format: "jwk" });
    override sign = (data: Uint8Array) => sign(data, { lifetimeSeconds });
  }
  const resource = "https://api.example";
  const tokenFormat = { accessTokenFormat: "jwt", accessTokenTTL: 300, jwt: { sign: { alg } }, scope: "read" };
  const oidc = new OidcProvider(url, {
    jwks: { keys: [new Key()] },
    clients: [
      {
        client_id: "app",
        client_secret: "secret",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        id_token_signed_response_alg: alg,
      },
    ],
    features: {
      externalSigningSupport: { enabled: true, ack: "experimental-01" },
      clientCredentials: { enabled: true },
      resourceIndicators: { enabled: true, getResourceServerInfo: () => tokenFormat },
    },
  });
  server.on("request", oidc.callback());
  const reply = await fetch(`${url}/token`, {
    method: "POST",
    headers: { Authorization: `Basic ${btoa("app:secret")}` },
    body: new URLSearchParams({ grant_type: "client_credentials", resource, scope: "read" }),
  });
  const { access_token: token = "" } = (await reply.json()) as { access_token?: string };
  const { claims } = await keys.verify(token, { audience: resource, typ: "at+jwt" });
  assert.equal(claims["client_id"], "app");
  // oidc-provider publishes the same key.
  const { keys: published } = (await (await fetch(`${url}/jwks`)).json()) as JSONWebKeySet;
  assert.deepEqual(published, [publicJwk]);
});
