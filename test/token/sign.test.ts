import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import * as jose from "jose";
import {
  type Claims,
  type Provider,
  type ProviderOptions,
  type SignOptions,
  type Signer,
  type SigningEntry,
  createProvider,
  localSigner,
} from "../../src/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { settled, simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";
import { read, signature, verdict } from "./compact.ts";

const issuer = "https://op.example";
const entry = async (kid: string): Promise<SigningEntry> => ({ kid, signer: await localSigner(ecKey(kid)) });
const provide = async (options?: ProviderOptions): Promise<Provider> =>
  createProvider({ issuer, keyset: [await entry("a")] }, options);

const document = async ({ fetch, jwksUri }: Provider): Promise<jose.JSONWebKeySet> =>
  (await fetch(new Request(jwksUri))).json() as Promise<jose.JSONWebKeySet>;

/** Verifies with jose and the published set alone, at any time. */
async function verified(token: string, set: jose.JSONWebKeySet): Promise<jose.CompactVerifyResult> {
  const { payload, protectedHeader } = await jose.compactVerify(token, jose.createLocalJWKSet(set));
  return { payload, protectedHeader };
}

describe("the content of a token", () => {
  const clock = simulatedClock();
  clock.setBy(999);
  const iat = Math.floor(clock.now() / 1000);
  const bare = Object.assign(Object.create(null) as Claims, { sub: "x" });
  const foreign = runInNewContext('({ sub: "x", aud: ["y"] })') as Claims;
  const odd = JSON.parse('{"__proto__":{"x":1},"toString":2}') as Claims;
  /** Claims, which the token contains in addition to its own, unless they are undefined. */
  const kept: [name: string, claims: Claims][] = [
    ["iss, iat and exp are set, typ is JWT", {}],
    ["claims are kept", { sub: "alice", aud: ["x", "y"], deep: { list: [1, null, "ü"] } }],
    ["the provider's iss is accepted", { iss: issuer }],
    ["an undefined registered claim counts as missing", { iss: undefined, iat: undefined, exp: undefined }],
    ["an undefined claim is omitted", { aud: undefined, nbf: undefined, sub: undefined }],
    ["nbf is taken from the caller", { nbf: 1 }],
    ["claims can be an object without a prototype", bare],
    ["claims can be an object from another realm", foreign],
    ["claims with the required types", { sub: "5", jti: "", auth_time: 0, aud: ["y", "z"] }],
    ["names with a meaning in JavaScript", odd],
  ];
  const more = { cty: "x", "https://example.org/p": [1] };
  const rows: [name: string, claims: Claims, options?: Partial<SignOptions>, header?: object, exp?: number][] = [
    ...kept,
    ["exp is derived from the lifetime", {}, { lifetimeSeconds: 3600 }, {}, iat + 3600],
    ["a lifetime of one second", {}, { lifetimeSeconds: 1 }, {}, iat + 1],
    ["the typ of an access token", { jti: "7" }, { typ: "at+jwt" }, { typ: "at+jwt" }],
    ["another typ", {}, { typ: "logout+jwt" }, { typ: "logout+jwt" }],
    ["additional header parameters", {}, { header: more }, more],
  ];
  for (const [name, claims, options, header, exp = iat + 60] of rows) {
    test(name, async () => {
      const provider = await provide({ clock });
      const token = await provider.sign(claims, { lifetimeSeconds: 60, ...options });
      assert.match(token, /^[\w-]+\.[\w-]+\.[\w-]{86}$/);
      const { payload, protectedHeader } = await verified(token, await document(provider));
      assert.deepEqual(protectedHeader, { alg: "ES256", kid: "a", typ: "JWT", ...header });
      const given = Object.entries(claims).filter(([, value]) => value !== undefined);
      const expected = Object.fromEntries([...given, ...Object.entries({ iss: issuer, iat, exp })]);
      assert.deepEqual(JSON.parse(new TextDecoder().decode(payload)), JSON.parse(JSON.stringify(expected)));
    });
  }

  test("an access token has a random jti unless the claims include one (RFC 9068 section 2.2)", async () => {
    const provider = await provide();
    const jtiOf = async (typ: string, jti?: string): Promise<unknown> =>
      read(await provider.sign({ jti }, { lifetimeSeconds: 60, typ })).claims["jti"];
    const uuid = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;
    const made = [await jtiOf("at+jwt"), await jtiOf("at+jwt"), await jtiOf("application/AT+JWT")];
    for (const jti of made) assert.match(String(jti), uuid);
    assert.equal(new Set(made).size, made.length);
    assert.deepEqual(
      [await jtiOf("at+jwt", "own"), await jtiOf("JWT"), await jtiOf("xat+jwt")],
      ["own", undefined, undefined],
    );
  });

  for (const kid of ["a b", 'quote"', "ключ", "𝄞", "../../etc/passwd", "\u0000", "x".repeat(500)]) {
    test(`the kid ${JSON.stringify(kid).slice(0, 24)} is preserved`, async () => {
      const provider = await provide({ keyset: [{ kid, signer: await localSigner(ecKey("a")) }] });
      const token = await provider.sign({ aud: "x" }, { lifetimeSeconds: 60 });
      const { protectedHeader } = await verified(token, await document(provider));
      assert.equal(protectedHeader.kid, kid);
      assert.equal((await provider.verify(token, { audience: "x" })).header.kid, kid);
    });
  }

  test("each token has its own header, independent of earlier tokens", async () => {
    const provider = await provide({ keyset: [await entry("a"), await entry("b")] });
    const headerOf = async (options: Partial<SignOptions>): Promise<object> =>
      read(await provider.sign({}, { lifetimeSeconds: 60, ...options })).header;
    for (const kid of ["a", "b", "a"]) {
      await provider.update({ keyset: [await entry(kid)] });
      const own = { alg: "ES256", kid };
      for (let round = 0; round < 2; round += 1) {
        assert.deepEqual(await headerOf({}), { ...own, typ: "JWT" });
        assert.deepEqual(await headerOf({ typ: "at+jwt" }), { ...own, typ: "at+jwt" });
        assert.deepEqual(await headerOf({ header: { cty: "x" } }), { ...own, typ: "JWT", cty: "x" });
        assert.deepEqual(await headerOf({ header: { cty: undefined } }), { ...own, typ: "JWT" });
        for (let other = 0; other < 20; other += 1)
          assert.deepEqual(await headerOf({ typ: `x${other}` }), { ...own, typ: `x${other}` });
      }
    }
  });

  test("later changes to the caller's claims have no effect", async () => {
    const provider = await provide();
    const claims = { sub: "alice" };
    const header = { cty: "x" };
    const signing = provider.sign(claims, { lifetimeSeconds: 60, header });
    claims.sub = "mallory";
    header.cty = "y";
    const token = read(await signing);
    assert.deepEqual([token.claims["sub"], token.header["cty"]], ["alice", "x"]);
    assert.deepEqual(claims, { sub: "mallory" });
  });
});

describe("rejects invalid claims and headers", () => {
  const loop: Record<string, unknown> = {};
  loop["loop"] = loop;
  const reserved = ["alg", "kid", "typ", "b64", "crit", "zip", "jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256"];
  const rows: [name: string, claims: unknown, options?: object][] = [
    ...reserved.map((name): [string, unknown, object] => [`header ${name}`, {}, { header: { [name]: "x" } }]),
    ["header alg with jwksd's own value", {}, { header: { alg: "ES256" } }],
    ["header kid that is undefined", {}, { header: { kid: undefined } }],
    ["claim exp together with a lifetime", { exp: 1 }],
    ["claim exp that is null", { exp: null }],
    ["another issuer's iss", { iss: "https://other.example" }],
    ["claim iss that is null", { iss: null }],
    ["claim iss as a list", { iss: [issuer] }],
    ...[0, -1, 1.5, Number.NaN, Infinity, 2 ** 53, "60", null, undefined].map(
      (lifetimeSeconds): [string, unknown, object] => [
        `a lifetime of ${inspect(lifetimeSeconds)}`,
        {},
        { lifetimeSeconds },
      ],
    ),
    ...[null, undefined, [{ sub: "x" }], "sub", 7].map((claims): [string, unknown] => [
      `claims ${inspect(claims)}`,
      claims,
    ]),
    ...[Number.NaN, Infinity, -Infinity, "1", null, new Date(0)].map((nbf): [string, unknown] => [
      `claim nbf of ${inspect(nbf)}`,
      { nbf },
    ]),
    ...[7, null, "", {}, [], [""], ["x", 7], Array<string>(1), new Set(["x"])].map((aud): [string, unknown] => [
      `claim aud of ${inspect(aud)}`,
      { aud },
    ]),
    ...[5, null, "", ["x"], {}].map((sub): [string, unknown] => [`claim sub of ${inspect(sub)}`, { sub }]),
    ...[7, null, ["x"]].map((jti): [string, unknown] => [`claim jti of ${inspect(jti)}`, { jti }]),
    ...["yesterday", null, Number.NaN, new Date(0)].map((time): [string, unknown] => [
      `claim auth_time of ${inspect(time)}`,
      { auth_time: time },
    ]),
    ...[new Map([["sub", "x"]]), new Error("x"), Promise.resolve({}), new Date(0), Object.create({ sub: "x" })].flatMap(
      (value: object): [string, unknown, object?][] => [
        [`claims that are ${inspect(value).split("\n")[0]}`, value],
        [`a header that is ${inspect(value).split("\n")[0]}`, {}, { header: value }],
      ],
    ),
    ["a BigInt in the claims", { sub: 1n }],
    ["circular claims", loop],
    ["a BigInt in the header", {}, { header: { x: 1n } }],
    ["a header that is a list", {}, { header: [1] }],
    ["an empty typ", {}, { typ: "" }],
    ["a typ that is not a string", {}, { typ: 7 }],
    ["claims with toJSON()", { toJSON: () => ({ iss: "https://other.example" }) }],
    ["a header with toJSON()", {}, { header: { toJSON: () => ({ alg: "none" }) } }],
    ...[{}, "abort"].map((signal): [string, unknown, object] => [
      `a signal that is ${inspect(signal)}`,
      {},
      { signal },
    ]),
  ];
  for (const [name, claims, options] of rows) {
    test(name, async () => {
      let wasCalled = false;
      const signer: Signer = {
        publicKey: withoutPrivate(ecKey("a")),
        sign: () => ((wasCalled = true), Promise.reject(new Error())),
      };
      const provider = await provide({ keyset: [{ kid: "a", signer }] });
      const signing = provider.sign(claims as Claims, { lifetimeSeconds: 60, ...options });
      await assert.rejects(signing, { name: "TokenError", code: "ERR_CLAIMS_INVALID", retryable: false });
      assert.equal(wasCalled, false, "the signer was called");
    });
  }
});

describe("rejects an unknown option and names the right one", () => {
  const rows: readonly [options: object, message: RegExp][] = [
    [{ expiresIn: 300 }, /^there is no "expiresIn" option; use "lifetimeSeconds", in whole seconds$/],
    [{ audience: "api" }, /^there is no "audience" option; set the "aud" claim$/],
    [{ aud: "api" }, /^there is no "aud" option; set the "aud" claim$/],
    [{ subject: "alice" }, /; set the "sub" claim$/],
    [{ notBefore: 5 }, /; set the "nbf" claim$/],
    [{ jwtid: "x" }, /; set the "jti" claim$/],
    [{ issuer }, /; the provider sets the "iss" claim$/],
    [{ algorithm: "RS256" }, /; the provider sets the "alg" header$/],
    [{ keyid: "b" }, /; the provider sets the "kid" header$/],
    [{ headers: { cty: "x" } }, /^there is no "headers" option; did you mean "header"\?$/],
    [{ lifetime: 60 }, /; did you mean "lifetimeSeconds"\?$/],
    [{ noTimestamp: true }, /; choose from lifetimeSeconds, typ, header, signal$/],
    [{ expiresIn: undefined }, /"expiresIn"/],
  ];
  for (const [options, message] of rows) {
    test(inspect(options), async () => {
      const signing = (await provide()).sign({ sub: "x" }, { lifetimeSeconds: 60, ...options });
      await assert.rejects(signing, { name: "ConfigError", code: "ERR_OPTION_UNKNOWN", message });
    });
  }
});

test("signs a token only if verify() accepts its length", async () => {
  const provider = await provide();
  const sign = (length: number): Promise<string> =>
    provider.sign({ aud: "x", long: "x".repeat(length) }, { lifetimeSeconds: 60 });
  const { length } = await sign(12_000);
  // Three characters become four in base64url.
  const most = 12_000 + Math.floor(((16_384 - length) * 3) / 4);
  const longest = await sign(most);
  assert.ok(longest.length > 16_380);
  assert.equal(await verdict(provider.verify(longest, { audience: "x" })), "accepted");
  await assert.rejects(sign(most + 3), { name: "TokenError", code: "ERR_CLAIMS_INVALID", message: /16384 bytes/ });
});

test("signs nothing if the clock returns no time", async () => {
  const clock = { ...simulatedClock(), now: () => Number.NaN };
  await assert.rejects((await provide({ clock })).sign({}, { lifetimeSeconds: 60 }), {
    name: "ConfigError",
    code: "ERR_OPTION_INVALID",
  });
});

for (const options of [undefined, null]) {
  test(`reports a missing lifetime if the options are ${options}`, async () => {
    const signing = (await provide()).sign({}, options as unknown as SignOptions);
    await assert.rejects(signing, {
      name: "TokenError",
      code: "ERR_CLAIMS_INVALID",
      message: /^the "lifetimeSeconds" option is missing; /,
    });
  });
}

/** Creates a signer that returns valid signatures when the test releases them. */
function heldSigner(kid: string): { signer: Signer; release: () => void; readonly calls: number } {
  const waiting: (() => void)[] = [];
  let calls = 0;
  const signer: Signer = {
    publicKey: withoutPrivate(ecKey(kid)),
    sign: async ({ message }) => {
      calls += 1;
      await new Promise<void>((resolve) => waiting.push(resolve));
      return signature("ES256", ecKey(kid))(Buffer.from(message));
    },
  };
  return {
    signer,
    release: () => waiting.splice(0).forEach((resolve) => resolve()),
    get calls() {
      return calls;
    },
  };
}

describe("signing with the active signer", () => {
  const lifetimeSeconds = 60;

  test("applies signerLimits across updates", async () => {
    const { signer, release } = heldSigner("a");
    const limits = { maxConcurrent: 1, maxQueued: 0 };
    const provider = await provide({ keyset: [{ kid: "a", signer }], signerLimits: limits });
    const first = provider.sign({}, { lifetimeSeconds });
    assert.equal(await verdict(provider.sign({}, { lifetimeSeconds })), "ERR_SIGNER_BUSY");
    await provider.update({ keyset: [{ kid: "a", signer }, await entry("b")] });
    assert.equal(await verdict(provider.sign({}, { lifetimeSeconds })), "ERR_SIGNER_BUSY");
    await provider.update({ keyset: [await entry("b"), { kid: "a", signer }] });
    assert.equal(await verdict(provider.sign({}, { lifetimeSeconds })), "accepted");
    await provider.update({ keyset: [{ kid: "a", signer }] });
    assert.equal(await verdict(provider.sign({}, { lifetimeSeconds })), "ERR_SIGNER_BUSY");
    release();
    await verified(await first, await document(provider));
  });

  test("measures the deadline on the provider's clock", async () => {
    const clock = simulatedClock();
    const { signer } = heldSigner("a");
    const keyset = [{ kid: "a", signer }];
    const provider = await provide({ keyset, signerLimits: { timeoutMs: 70 }, clock });
    let outcome: string | undefined;
    void verdict(provider.sign({}, { lifetimeSeconds })).then((verdict) => (outcome = verdict));
    await clock.advance(69);
    assert.equal(outcome, undefined);
    await clock.advance(1);
    assert.equal(outcome, "ERR_SIGNER_TIMEOUT");
    assert.equal(clock.timers, 0);
  });

  test("aborts a signature when the caller's signal aborts", async () => {
    const { signer } = heldSigner("a");
    const provider = await provide({ keyset: [{ kid: "a", signer }] });
    const aborting = new AbortController();
    const outcome = verdict(provider.sign({}, { lifetimeSeconds, signal: aborting.signal }));
    aborting.abort();
    assert.equal(await outcome, "ERR_SIGNER_ABORTED");
  });

  test("does not return a token if the signer's private key does not match its public key", async () => {
    const b = await localSigner(ecKey("b"));
    const signer: Signer = { publicKey: withoutPrivate(ecKey("a")), sign: (input) => b.sign(input) };
    const provider = await provide({ keyset: [{ kid: "the kid", signer }] });
    await assert.rejects(provider.sign({}, { lifetimeSeconds }), {
      code: "ERR_SIGNER_BAD_SIGNATURE",
      message: /^kid "the kid": the signature does not verify with the published key/,
    });
  });

  test("uses a signer's new kid", async () => {
    const signer = await localSigner(ecKey("a"));
    const provider = await provide({ keyset: [{ kid: "old", signer }] });
    await provider.update({ keyset: [{ kid: "new", signer }] });
    const token = await provider.sign({}, { lifetimeSeconds });
    assert.equal((await verified(token, await document(provider))).protectedHeader.kid, "new");
  });
});

test("captures the kid and the signer together when sign() is called", async () => {
  const a = heldSigner("a");
  const provider = await provide({ keyset: [{ kid: "a", signer: a.signer }, await entry("b")] });
  const before = await document(provider);
  const slow = provider.sign({ n: 1 }, { lifetimeSeconds: 60 });
  await settled();
  await provider.update({ keyset: [await entry("b")] });
  const next = await provider.sign({ n: 2 }, { lifetimeSeconds: 60 });
  a.release();
  assert.equal((await verified(await slow, before)).protectedHeader.kid, "a");
  assert.equal((await verified(next, await document(provider))).protectedHeader.kid, "b");
  assert.equal(a.calls, 1);
});

const kids = ["a", "b", "c", "d"];
const slowSigners = await Promise.all(
  kids.map(async (kid) => {
    const fast = await localSigner(ecKey(kid));
    const slow: Signer["sign"] = async (input) => {
      for (let turn = input.digest[0] ?? 0; turn > 0; turn -= 32) await new Promise(setImmediate);
      return fast.sign(input);
    };
    return { kid, signer: { publicKey: fast.publicKey, sign: slow } };
  }),
);
const order = fc.shuffledSubarray(slowSigners, { minLength: 1 });
const steps = fc.array(
  fc.oneof(fc.constant("sign" as const), fc.constant("sign" as const), fc.constant("turn" as const), order),
  { minLength: 5, maxLength: 25 },
);

test("property: after any updates, each token verifies with the first key in the set that was current when sign() was called", async () => {
  await fc.assert(
    fc.asyncProperty(order, steps, async (keyset, steps) => {
      const provider = await provide({ keyset });
      const tokens: Promise<unknown>[] = [];
      let n = 0;
      for (const step of steps) {
        if (step === "turn") await new Promise(setImmediate);
        else if (step === "sign") tokens.push(check((n += 1)));
        else tokens.push(provider.update({ keyset: step }));
      }
      await Promise.all(tokens);

      async function check(n: number): Promise<void> {
        const reading = document(provider);
        const token = await provider.sign({ n }, { lifetimeSeconds: 60 });
        const set = await reading;
        const { payload, protectedHeader } = await verified(token, set);
        assert.equal(protectedHeader.kid, set.keys[0]?.kid);
        assert.equal((JSON.parse(new TextDecoder().decode(payload)) as { n: number }).n, n);
      }
    }),
    { numRuns: soak(100, 20) },
  );
});
