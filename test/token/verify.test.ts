import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import * as jose from "jose";
import {
  type JwksdErrorCode,
  FetchError,
  type KeyResolver,
  type Provider,
  type SigningEntry,
  TokenError,
  type VerifyOptions,
  createProvider,
  localSigner,
  verify,
  type SignOptions,
} from "../../src/index.ts";
import { type PrivateJwk, ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import { simulatedClock } from "../support/simulated.ts";
import { type Signature, compact, encode, hmac, noSignature, signature, verdict, read } from "./compact.ts";

const issuer = "https://op.example";
const audience = "https://rp.example";
const key = ecKey("a");
const publicJwk = withoutPrivate(key);
const attacker = ecKey("attacker");

const clock = simulatedClock();
clock.setBy(999);
const now = Math.floor(clock.now() / 1000);
const claims = { iss: issuer, aud: audience, exp: now + 60 };
const header = { alg: "ES256", kid: "a" };
const es256 = signature("ES256", key);
const byKey = (more: object, signedBy = es256): string => compact({ ...header, ...more }, claims, signedBy);

const imported = (await jose.importJWK(publicJwk, "ES256")) as jose.CryptoKey;
const privateKey = await jose.importJWK(key, "ES256");
/** Finds the only key by its kid. */
const keys: KeyResolver = ({ kid }) => {
  if (kid !== "a") throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "no such kid");
  return imported;
};
const neverCalled: KeyResolver = () => assert.fail("the key source was called");
const options: VerifyOptions = { keys, issuer, audience, algorithms: ["ES256"], clock };

interface Row {
  readonly name: string;
  readonly token: string;
  readonly options?: Partial<VerifyOptions> | undefined;
  readonly expect: "accepted" | JwksdErrorCode;
}

function check(rows: readonly Row[]): void {
  for (const { name, token, options: more, expect } of rows) {
    test(`${name}: ${expect}`, async () => {
      const verifying = verify(token, { ...options, ...more });
      assert.equal(await verdict(verifying), expect);
      if (expect === "accepted") return;
      const error = (await verifying.catch((error: unknown) => error)) as TokenError;
      assert.equal(error.name, "TokenError");
      assert.equal(error.retryable, false);
      // A token may be a credential, so no message contains it.
      if (typeof token === "string" && token.length > 3) assert.ok(!inspect(error, { depth: 9 }).includes(token));
    });
  }
}

test("returns an accepted token's header and claims", async () => {
  const token = byKey({ typ: "JWT", extra: 1 });
  assert.deepEqual(await verify(token, options), { header: { ...header, typ: "JWT", extra: 1 }, claims });
});

describe("no option defaults to accepting everything, and an invalid option is not reported as an invalid token", () => {
  const wrong = ["", [], [""], [undefined], ["x", ""]];
  const rows: [name: string, values: readonly unknown[]][] = [
    ...["issuer", "audience", "algorithms"].map((name): [string, unknown[]] => [name, wrong]),
    ["algorithms", [["none"], ["HS256"], ["ES256", "HS512"], ["es256"], ["ES256K"], ["dir"], "ES256"]],
    ["clockToleranceSeconds", [301]],
    ["keys", [{ keys: [] }, imported]],
    ["typ", [""]],
    ["requiredClaims", [[7]]],
    ["clock", [Number.NaN, Infinity, 1e20, "0", null, undefined].map((now) => ({ now: () => now }))],
  ];
  for (const [name, values] of rows) {
    for (const value of values) {
      test(`${name}: ${inspect(value, { depth: 0 })}`, async () => {
        // The clock is read once a key is found.
        const broken = { ...options, keys: name === "clock" ? keys : neverCalled, [name]: value };
        await assert.rejects(verify(byKey({}), broken), { name: "ConfigError", code: "ERR_OPTION_INVALID" });
      });
    }
  }

  const noPublicKeys: [name: string, key: unknown][] = [
    ["a private key", privateKey],
    ["a shared secret", new Uint8Array(32)],
    ["a pair", { publicKey: imported }],
    ["a string", "key"],
    ["a number", 7],
  ];
  for (const [name, key] of noPublicKeys) {
    test(`a key source that returns ${name} is rejected`, async () => {
      for (const keys of [() => key, async () => key]) {
        const broken = { ...options, keys: keys as KeyResolver };
        await assert.rejects(verify(byKey({}), broken), { name: "ConfigError", code: "ERR_OPTION_INVALID" });
      }
    });
  }
});

/** Returns a token that is valid except for its size, in characters. */
function sized(length: number): string {
  // Not every length can be reached with the payload alone.
  for (let more = 0; more < 4; more += 1) {
    let token = "";
    for (let padding = 11_950; token.length < length; padding += 1)
      token = compact({ ...header, p: "x".repeat(more) }, { ...claims, p: "x".repeat(padding) }, es256);
    if (token.length === length) return token;
  }
  return assert.fail(`no token of ${length} characters`);
}

describe("checks the size first", () => {
  check([
    { name: "16 KiB", token: sized(16_384), expect: "accepted" },
    {
      name: "one character more, although it is valid",
      token: sized(16_385),
      options: { keys: neverCalled },
      expect: "ERR_TOKEN_TOO_LARGE",
    },
    {
      name: "a large string that is not a token",
      token: "x".repeat(10_000_000),
      options: { keys: neverCalled },
      expect: "ERR_TOKEN_TOO_LARGE",
    },
    {
      name: "a large header",
      token: byKey({ p: "x".repeat(20_000) }),
      options: { keys: neverCalled },
      expect: "ERR_TOKEN_TOO_LARGE",
    },
  ]);
});

/** Returns JSON whose last base64url character has unused bits. */
const padded = (value: object): string => {
  const text = JSON.stringify(value);
  return text.padEnd(text.length + ((4 - (text.length % 3)) % 3));
};
/** Returns a string that a lenient decoder decodes to the same bytes. */
const withTrailingBits = (text: string): string => {
  const bent = `${text.slice(0, -1)}${String.fromCharCode(text.charCodeAt(text.length - 1) + 1)}`;
  assert.deepEqual(Buffer.from(bent, "base64url"), Buffer.from(text, "base64url"));
  return bent;
};

describe("rejects input that is not a compact JWS with a JSON header and JSON claims", () => {
  const [head = "", body = "", tail = ""] = byKey({}).split(".");
  const signed = (head: string, body: string): string => {
    const input = `${head}.${body}`;
    return `${input}.${Buffer.from(es256(Buffer.from(input))).toString("base64url")}`;
  };
  const raw = (payload: string | Uint8Array): string => signed(head, Buffer.from(payload).toString("base64url"));
  const malformed: [name: string, token: unknown][] = [
    ["nothing", undefined],
    ["null", null],
    ["a number", 7],
    ["bytes", Buffer.from(byKey({}))],
    ["an empty string", ""],
    ["two dots", ".."],
    ["one part", head],
    ["two parts", `${head}.${body}`],
    ["four parts", `${head}.${body}.${tail}.${tail}`],
    ["five parts, like a JWE", `${head}.${body}.${body}.${body}.${tail}`],
    ["a header that is not base64url", `{"alg":"ES256"}.${body}.${tail}`],
    ["a header that is not JSON", `${encode("alg")}.${body}.${tail}`],
    ["a header that is a list", `${encode([header])}.${body}.${tail}`],
    ["a header that is null", `${encode("null")}.${body}.${tail}`],
    ["no header", `.${body}.${tail}`],
    ["a header without alg", compact({ kid: "a" }, claims, es256)],
    ["an alg that is not a string", compact({ ...header, alg: ["ES256"] }, claims, es256)],
    ["a signature that is not base64url", `${head}.${body}.${tail.slice(0, -1)}!`],
    ...["=", "==", " ", "\n", "\r\n", "\t"].map((more): [string, string] => [
      `${JSON.stringify(more)} after the signature (RFC 7515 section 5.2)`,
      `${head}.${body}.${tail}${more}`,
    ]),
    ["whitespace in the signature", `${head}.${body}.${tail.slice(0, 40)}\n${tail.slice(40)}`],
    ["whitespace before the token", ` ${head}.${body}.${tail}`],
    ["a signature with trailing bits (RFC 4648 section 3.5)", `${head}.${body}.${withTrailingBits(tail)}`],
    ["a header with trailing bits", signed(withTrailingBits(encode(padded(header))), body)],
    ["claims with trailing bits", signed(head, withTrailingBits(encode(padded(claims))))],
    ["one character more than whole bytes need", `${head}.${body}.${tail}AAA`],
    ["claims that are not JSON", raw("claims")],
    ["claims that are a list", raw(JSON.stringify([claims]))],
    ["claims that are null", raw("null")],
    ["claims that are a string", raw('"claims"')],
    ["no claims", raw("")],
    ["claims that are not UTF-8", raw(Uint8Array.from([0x7b, 0xff, 0x7d]))],
    ["an empty crit", byKey({ crit: [] })],
    ["a crit that is not a list", byKey({ crit: "x", x: 1 })],
    ["a crit that names a missing parameter", byKey({ crit: ["b64"] })],
    ["claims that are not encoded (b64)", byKey({ crit: ["b64"], b64: false })],
  ];
  check(malformed.map(([name, token]) => ({ name, token: token as string, expect: "ERR_TOKEN_MALFORMED" })));
});

describe("rejects critical header parameters (RFC 7515 section 4.1.11)", () => {
  check(
    [
      { crit: ["exp"], exp: 1 },
      { crit: ["https://example.org/p"], "https://example.org/p": true },
      { crit: ["x", "b64"], x: 1, b64: true },
    ].map((more) => ({ name: JSON.stringify(more), token: byKey(more), expect: "ERR_TOKEN_CRIT" as const })),
  );
});

describe("the alg must be allowed (RFC 8725 section 3.1)", () => {
  const spki = createPublicKey({ key: publicJwk, format: "jwk" }).export({ type: "spki", format: "pem" }).toString();
  const rows: [name: string, alg: string, signedBy: Signature][] = [
    ["none", "none", noSignature],
    ["None", "None", noSignature],
    ["NONE, with a signature", "NONE", es256],
    ["HMAC with the public key as PEM", "HS256", hmac("HS256", spki)],
    ["HMAC with the public key as JSON", "HS256", hmac("HS256", JSON.stringify(publicJwk))],
    ["HMAC with the x of the public key", "HS512", hmac("HS512", key.x)],
    ["lower case", "es256", es256],
    ["another size", "ES512", es256],
    ["RSA", "RS256", signature("RS256", rsaKey())],
    ["a JWE algorithm", "ECDH-ES", es256],
    ["an unknown name", "x", es256],
  ];
  check(
    rows.map(([name, alg, signedBy]) => ({
      name,
      token: byKey({ alg }, signedBy),
      options: { keys: neverCalled },
      expect: "ERR_TOKEN_ALG",
    })),
  );
});

describe("the alg must match the key, even if keys are found by kid alone", () => {
  const algorithms = ["ES256", "ES384", "RS256", "PS256", "EdDSA"];
  const rows: [alg: string, jwk: PrivateJwk][] = [
    ["RS256", rsaKey()],
    ["PS256", rsaKey()],
    ["ES384", ecKey("p384", "P-384")],
  ];
  check([
    { name: "ES256", token: byKey({}), options: { algorithms }, expect: "accepted" },
    ...rows.map(([alg, jwk]): Row => ({
      name: alg,
      token: byKey({ alg }, signature(alg, jwk)),
      options: { algorithms },
      expect: "ERR_TOKEN_ALG",
    })),
    { name: "EdDSA", token: byKey({ alg: "EdDSA" }), options: { algorithms }, expect: "ERR_TOKEN_ALG" },
  ]);
});

describe("selects the key only by kid", () => {
  const attackerJwk = withoutPrivate(attacker);
  const byAttacker = signature("ES256", attacker);
  const embedded = {
    jwk: attackerJwk,
    jku: "https://attacker.example/jwks",
    x5u: "https://attacker.example/cert.pem",
    x5c: ["MIIB"],
    x5t: "x",
  };
  check([
    ...[undefined, null, "", 7, ["a"]].map((kid): Row => ({
      name: `kid ${inspect(kid)}`,
      token: byKey({ kid }),
      options: { keys: neverCalled },
      expect: "ERR_TOKEN_KID_MISSING",
    })),
    { name: "an unknown kid", token: byKey({ kid: "b" }), expect: "ERR_TOKEN_KID_UNKNOWN" },
    { name: "another key with the kid", token: byKey({}, byAttacker), expect: "ERR_TOKEN_SIGNATURE" },
    ...Object.entries(embedded).flatMap(([name, value]): Row[] => [
      { name: `an attacker's ${name}`, token: byKey({ [name]: value }, byAttacker), expect: "ERR_TOKEN_SIGNATURE" },
      {
        name: `an attacker's ${name}, no kid`,
        token: byKey({ [name]: value, kid: undefined }, byAttacker),
        expect: "ERR_TOKEN_KID_MISSING",
      },
      { name: `${name} is ignored`, token: byKey({ [name]: value }), expect: "accepted" },
    ]),
  ]);

  test("and never fetches a URL in the header", async (t) => {
    const fetch = t.mock.method(globalThis, "fetch", () => Promise.reject(new Error("offline")));
    await verify(byKey(embedded), options);
    assert.equal(fetch.mock.callCount(), 0);
  });
});

describe("the signature covers header and claims", () => {
  const [head = "", body = "", tail = ""] = byKey({}).split(".");
  const der = Buffer.from([0x30, 0x44, ...es256(Buffer.from(`${head}.${body}`))]).toString("base64url");
  const rows: [name: string, token: string][] = [
    ["other claims", `${head}.${encode({ ...claims, sub: "mallory" })}.${tail}`],
    ["another header", `${encode({ ...header, typ: "x" })}.${body}.${tail}`],
    ["another token's signature", `${head}.${body}.${byKey({ typ: "x" }).split(".")[2]}`],
    ["no signature", `${head}.${body}.`],
    ["half of a signature", `${head}.${body}.${tail.slice(0, 40)}`],
    ["zeros", `${head}.${body}.${"A".repeat(86)}`],
    ["a DER signature", `${head}.${body}.${der}`],
  ];
  check(rows.map(([name, token]) => ({ name, token, expect: "ERR_TOKEN_SIGNATURE" })));
});

describe("claims (RFC 7519 section 4.1), with synchronized clocks", () => {
  const rows: [name: string, more: object, expect: Row["expect"], options?: Partial<VerifyOptions>][] = [
    ["iss is missing", { iss: undefined }, "ERR_TOKEN_CLAIM"],
    ["another iss", { iss: "https://other.example" }, "ERR_TOKEN_CLAIM"],
    ["iss with an additional slash", { iss: `${issuer}/` }, "ERR_TOKEN_CLAIM"],
    ["iss as a list", { iss: [issuer] }, "ERR_TOKEN_CLAIM"],
    ["iss is one of several", {}, "accepted", { issuer: ["https://other.example", issuer] }],
    ["iss is none of several", {}, "ERR_TOKEN_CLAIM", { issuer: ["https://x.example", "https://y.example"] }],
    ["aud is missing", { aud: undefined }, "ERR_TOKEN_CLAIM"],
    ["another aud", { aud: "https://other.example" }, "ERR_TOKEN_CLAIM"],
    ["aud has the same beginning", { aud: `${audience}.attacker.example` }, "ERR_TOKEN_CLAIM"],
    ["aud is a list that contains it", { aud: ["https://other.example", audience] }, "accepted"],
    ["aud is a list without it", { aud: ["https://other.example"] }, "ERR_TOKEN_CLAIM"],
    ["aud is an empty list", { aud: [] }, "ERR_TOKEN_CLAIM"],
    ["aud is a number", { aud: 7 }, "ERR_TOKEN_CLAIM"],
    ["aud is one of several", {}, "accepted", { audience: ["https://other.example", audience] }],
    ["exp is missing", { exp: undefined }, "ERR_TOKEN_CLAIM"],
    ["exp is a string", { exp: String(now + 60) }, "ERR_TOKEN_CLAIM"],
    ["exp is null", { exp: null }, "ERR_TOKEN_CLAIM"],
    ["exp in a second", { exp: now + 1 }, "accepted"],
    ["exp now", { exp: now }, "ERR_TOKEN_EXPIRED"],
    ["exp a second ago", { exp: now - 1 }, "ERR_TOKEN_EXPIRED"],
    ["nbf now", { nbf: now }, "accepted"],
    ["nbf in a second", { nbf: now + 1 }, "ERR_TOKEN_CLAIM"],
    ["nbf is a string", { nbf: "now" }, "ERR_TOKEN_CLAIM"],
    ["iat is a string", { iat: "now" }, "ERR_TOKEN_CLAIM"],
    ["exp ten seconds ago, ten tolerated", { exp: now - 10 }, "ERR_TOKEN_EXPIRED", { clockToleranceSeconds: 10 }],
    ["exp nine seconds ago, ten tolerated", { exp: now - 9 }, "accepted", { clockToleranceSeconds: 10 }],
    ["nbf in ten seconds, ten tolerated", { nbf: now + 10 }, "accepted", { clockToleranceSeconds: 10 }],
    ["nbf in eleven seconds, ten tolerated", { nbf: now + 11 }, "ERR_TOKEN_CLAIM", { clockToleranceSeconds: 10 }],
    ["a required claim is present", { sub: "x" }, "accepted", { requiredClaims: ["sub"] }],
    ["a required claim is missing", {}, "ERR_TOKEN_CLAIM", { requiredClaims: ["sub"] }],
    [
      "exp is required in addition to others",
      { exp: undefined, sub: "x" },
      "ERR_TOKEN_CLAIM",
      { requiredClaims: ["sub"] },
    ],
    ["a required claim that every object has", {}, "ERR_TOKEN_CLAIM", { requiredClaims: ["toString"] }],
  ];
  check(
    rows.map(([name, more, expect, options]) => ({
      name,
      token: compact(header, { ...claims, ...more }, es256),
      options,
      expect,
    })),
  );

  test("a token that expires while its keys are being fetched causes ERR_TOKEN_EXPIRED", async () => {
    const clock = simulatedClock();
    const slow: KeyResolver = (header) => {
      clock.setBy(120_000);
      return keys(header);
    };
    const token = compact(header, { ...claims, exp: clock.now() / 1000 + 60 }, es256);
    assert.equal(await verdict(verify(token, { ...options, clock })), "accepted");
    assert.equal(await verdict(verify(token, { ...options, clock, keys: slow })), "ERR_TOKEN_EXPIRED");
  });

  // JSON.stringify never writes these numbers, but JSON.parse returns Infinity for them.
  for (const [name, number] of [
    ["exp", "1e400"],
    ["nbf", "-1e400"],
    ["iat", "1e400"],
    ["iat", "-1e400"],
  ] as const) {
    test(`${name} ${number} causes ERR_TOKEN_CLAIM in every verifier`, async () => {
      const token = compact(header, JSON.stringify({ ...claims, [name]: "?" }).replace('"?"', number), es256);
      await assert.rejects(verify(token, options), { code: "ERR_TOKEN_CLAIM", message: new RegExp(`"${name}"`) });
      const signer = await localSigner(key);
      const provider = await createProvider({ issuer, keyset: [{ kid: "a", signer }], clock });
      assert.equal(await verdict(provider.verify(token, { audience })), "ERR_TOKEN_CLAIM");
    });
  }

  test("the message names the claim", async () => {
    const messages: [more: object, message: RegExp][] = [
      [{ aud: "x" }, /^claim "aud" does not have the expected value$/],
      [{ iss: undefined }, /^claim "iss" is missing$/],
      [{ nbf: now + 1 }, /^claim "nbf"/],
    ];
    for (const [more, message] of messages)
      await assert.rejects(verify(compact(header, { ...claims, ...more }, es256), options), { message });
  });
});

describe("compares typ as a media type (RFC 7515 section 4.1.9, RFC 8725 section 3.11)", () => {
  const rows: [typ: unknown, wanted: string | undefined, expect: Row["expect"]][] = [
    ["at+jwt", "at+jwt", "accepted"],
    ["application/at+jwt", "at+jwt", "accepted"],
    ["AT+JWT", "at+jwt", "accepted"],
    ["at+jwt", "application/at+jwt", "accepted"],
    ["JWT", "at+jwt", "ERR_TOKEN_TYP"],
    ["at+jwt", "JWT", "ERR_TOKEN_TYP"],
    ["text/at+jwt", "at+jwt", "ERR_TOKEN_TYP"],
    [undefined, "at+jwt", "ERR_TOKEN_TYP"],
    ["", "at+jwt", "ERR_TOKEN_TYP"],
    [["at+jwt"], "at+jwt", "ERR_TOKEN_TYP"],
    [undefined, undefined, "accepted"],
    ["whatever", undefined, "accepted"],
  ];
  check(
    rows.map(([typ, wanted, expect]) => ({
      name: `${inspect(typ)} if ${inspect(wanted)} is expected`,
      token: byKey({ typ }),
      options: { typ: wanted },
      expect,
    })),
  );
});

function throwing(reason: Error): never {
  throw reason;
}

describe("a key source, whose errors are passed on unchanged", () => {
  const rows: [name: string, thrown: Error][] = [
    ["a FetchError", new FetchError("ERR_KEYS_RETRY_LATER", "later")],
    ["a TokenError", new TokenError("ERR_TOKEN_ALG", "no")],
    ["an application's own error", new Error("no database")],
    ["a TypeError", new TypeError("x is undefined")],
    ["an error from jose", new jose.errors.JWKSTimeout()],
  ];
  for (const [name, thrown] of rows) {
    test(name, async () => {
      for (const keys of [() => throwing(thrown), () => Promise.reject(thrown)])
        await assert.rejects(verify(byKey({}), { ...options, keys }), (error) => error === thrown);
    });
  }

  test("causes ERR_TOKEN_KID_UNKNOWN if it returns no key", async () => {
    const known = new Map([["a", imported]]);
    const verdictOn = (kid: string): Promise<string> =>
      verdict(verify(byKey({ kid }), { ...options, keys: ({ kid = "" }) => known.get(kid) }));
    assert.deepEqual([await verdictOn("a"), await verdictOn("b")], ["accepted", "ERR_TOKEN_KID_UNKNOWN"]);
    const keys = (async () => null) as unknown as KeyResolver;
    assert.equal(await verdict(verify(byKey({}), { ...options, keys })), "ERR_TOKEN_KID_UNKNOWN");
  });

  test("can be a jose key set", async () => {
    const keys = jose.createLocalJWKSet({ keys: [{ ...publicJwk, kid: "a" }] });
    assert.equal(await verdict(verify(byKey({}), { ...options, keys })), "accepted");
    await assert.rejects(verify(byKey({ kid: "b" }), { ...options, keys }), jose.errors.JWKSNoMatchingKey);
  });
});

const entry = async (kid: string): Promise<SigningEntry> => ({ kid, signer: await localSigner(ecKey(kid)) });
const provide = async (...kids: string[]): Promise<Provider> =>
  createProvider({ issuer, keyset: await Promise.all(kids.map(entry)), clock });
const signed = (more: { header?: object; claims?: object } = {}, by = "a"): string =>
  compact({ ...header, kid: by, ...more.header }, { ...claims, ...more.claims }, signature("ES256", ecKey(by)));

describe("provider.verify", () => {
  const rows: [name: string, token: string, expect: Row["expect"], options?: object][] = [
    ["the active key", signed(), "accepted"],
    ["a retiring key", signed({}, "b"), "accepted"],
    ["an unknown kid", signed({ header: { kid: "x" } }), "ERR_TOKEN_KID_UNKNOWN"],
    ["no kid", signed({ header: { kid: undefined } }), "ERR_TOKEN_KID_MISSING"],
    ["the kid of another key", signed({ header: { kid: "b" } }), "ERR_TOKEN_SIGNATURE"],
    ["a kid that every object has", signed({ header: { kid: "constructor" } }), "ERR_TOKEN_KID_UNKNOWN"],
    ["another issuer with the same key", signed({ claims: { iss: "https://x.example" } }), "ERR_TOKEN_CLAIM"],
    ["another audience", signed({ claims: { aud: "https://x.example" } }), "ERR_TOKEN_CLAIM"],
    ["expired, by the provider's clock", signed({ claims: { exp: now } }), "ERR_TOKEN_EXPIRED"],
    ["tolerated", signed({ claims: { exp: now } }), "accepted", { clockToleranceSeconds: 1 }],
    ["another typ", signed({ header: { typ: "JWT" } }), "ERR_TOKEN_TYP", { typ: "at+jwt" }],
    ["the typ", signed({ header: { typ: "at+jwt" } }), "accepted", { typ: "at+jwt" }],
    ["a claim is missing", signed(), "ERR_TOKEN_CLAIM", { requiredClaims: ["sub"] }],
    ["no audience to compare", signed(), "ERR_OPTION_INVALID", { audience: undefined }],
  ];
  for (const [name, token, expect, more] of rows) {
    test(`${name}: ${expect}`, async () => {
      const provider = await provide("a", "b");
      assert.equal(await verdict(provider.verify(token, { audience, ...more })), expect);
    });
  }

  test("uses the provider's keys, issuer, algorithms and clock, whatever the caller passes", async () => {
    const provider = await provide("a");
    const foreign = {
      keys: () => imported,
      issuer: "https://x.example",
      algorithms: ["ES256", "RS256"],
      clock: { now: () => 0 },
    };
    const verdictOn = (token: string) => verdict(provider.verify(token, { audience, ...foreign }));
    assert.equal(await verdictOn(signed()), "accepted");
    assert.equal(await verdictOn(signed({ header: { kid: "x" } })), "ERR_TOKEN_KID_UNKNOWN");
    assert.equal(await verdictOn(signed({ claims: { iss: "https://x.example" } })), "ERR_TOKEN_CLAIM");
    assert.equal(await verdictOn(byKey({ alg: "RS256" }, signature("RS256", rsaKey()))), "ERR_TOKEN_ALG");
    assert.equal(await verdictOn(signed({ claims: { exp: now } })), "ERR_TOKEN_EXPIRED");
  });

  test("applies each update: retiring keys are accepted, and removed keys are rejected but can come back (endpoint specification, section 1, point 5)", async () => {
    const provider = await provide("a");
    const verdicts = async (): Promise<string[]> =>
      Promise.all(["a", "b", "c"].map((kid) => verdict(provider.verify(signed({}, kid), { audience }))));
    const [yes, no] = ["accepted", "ERR_TOKEN_KID_UNKNOWN"];
    assert.deepEqual(await verdicts(), [yes, no, no]);
    for (const [kids, expected] of [
      [
        ["b", "a"],
        [yes, yes, no],
      ],
      [
        ["c", "b"],
        [no, yes, yes],
      ],
      [["c"], [no, no, yes]],
      [
        ["a", "c"],
        [yes, no, yes],
      ],
    ] as const) {
      await provider.update({ keyset: await Promise.all(kids.map(entry)) });
      assert.deepEqual(await verdicts(), expected);
    }
  });

  test("keeps all keys after a rejected update", async () => {
    const provider = await provide("a", "b");
    await assert.rejects(provider.update({ keyset: [await entry("c"), await entry("c")] }));
    assert.equal(await verdict(provider.verify(signed({}, "b"), { audience })), "accepted");
    assert.equal(await verdict(provider.verify(signed({}, "c"), { audience })), "ERR_TOKEN_KID_UNKNOWN");
  });
});

// Provider libraries set a token's times themselves. A token must never outlive its key (RFC 7519 section 4.1).

const provider = await createProvider({
  issuer,
  keyset: [{ kid: "a", signer: await localSigner(ecKey("a")) }],
  maxTokenLifetimeSeconds: 3600,
  clock,
});

const sign = (claims: object, options: SignOptions = {}): Promise<string> =>
  provider.sign({ aud: "api", ...claims }, options);

describe("keeps the times in the claims if the policy allows them", () => {
  const rows: [source: string, claims: object, options?: SignOptions][] = [
    ["4.1.4, 4.1.6", { iat: now, exp: now + 900 }],
    ["4.1.4: as long as the policy allows", { exp: now + 3600 }],
    ["4.1.4: a second", { exp: now + 1 }],
    ["4.1.4: a fraction of a second", { exp: now + 1.5 }],
    ["4.1.6: set by a clock that is ahead", { iat: now + 60, exp: now + 900 }],
    ["4.1.6: a token that is issued again", { iat: now - 86_400, exp: now + 900 }],
    ["4.1.6: with a lifetime", { iat: now - 5 }, { lifetimeSeconds: 60 }],
    ["4.1.5", { nbf: now, exp: now + 900 }],
    ["4.1.5: valid later", { nbf: now + 899, exp: now + 900 }],
    ["4.1.1", { iss: issuer, iat: now, exp: now + 900 }],
  ];
  for (const [source, claims, options] of rows) {
    test(`RFC 7519 section ${source}: ${inspect(claims)}`, async () => {
      const token = await sign(claims, options);
      const exp = now + (options?.lifetimeSeconds ?? 0);
      assert.deepEqual(read(token).claims, { aud: "api", iss: issuer, iat: now, exp, ...claims });
      if (!source.startsWith("4.1.5: valid later"))
        assert.equal(await verdict(provider.verify(token, { audience: "api", clockToleranceSeconds: 60 })), "accepted");
    });
  }
});

describe("rejects times that the policy does not allow and names the claim", () => {
  const rows: [claims: object, message: RegExp, options?: SignOptions][] = [
    [
      { exp: now + 3601 },
      / is 3601 seconds in the future, but must be at most 3600, .*raise maxTokenLifetimeSeconds \(for managed keys, with jwksd policy\); "exp" is in seconds/,
    ],
    [{}, /^lifetimeSeconds is 3601, but must be at most 3600/, { lifetimeSeconds: 3601 }],
    [{ exp: 1e300 }, /^claim "exp" is .* in the future/],
    [{ exp: now }, /^claim "exp" is 0 seconds in the past/],
    [{ exp: now - 1 }, /^claim "exp" is 1 seconds in the past/],
    [{ exp: now + 60 }, /^set either/, { lifetimeSeconds: 60 }],
    [{ exp: now + 900, iat: now + 61 }, /^claim "iat" is 61 seconds in the future/],
    [{ iat: now + 61 }, /^claim "iat" is 61 seconds in the future/, { lifetimeSeconds: 900 }],
    [{ exp: now + 10, iat: now + 10 }, /^claim "iat" must be before "exp"/],
    [{ exp: now + 10, nbf: now + 10 }, /^claim "nbf" must be before "exp"/],
    [{ nbf: now + 60 }, /^claim "nbf" must be before "exp"/, { lifetimeSeconds: 60 }],
    [{ exp: now + 900, iss: "https://other.example" }, /^claim "iss"/],
    [{ iat: now }, /^the "lifetimeSeconds" option is missing; /],
    [{ iat: now }, /^lifetimeSeconds must be/, { lifetimeSeconds: 0 }],
    ...["exp", "iat", "nbf"].flatMap((name) =>
      [`${now + 60}`, null, Number.NaN, Infinity, new Date(), true, [now]].map((value): [object, RegExp] => [
        { exp: now + 900, [name]: value },
        new RegExp(`^claim "${name}" must be a number`),
      ]),
    ),
  ];
  for (const [claims, message, options] of rows) {
    test(inspect(claims, { breakLength: Infinity }), async () => {
      await assert.rejects(sign(claims, options), { name: "TokenError", code: "ERR_CLAIMS_INVALID", message });
    });
  }
});
