import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { describe, test } from "node:test";
import * as jose from "jose";
import type { KeySetState } from "../../src/library/relying-party/index.ts";
import { type VerifyOptions, verify } from "../../src/library/token/verify.ts";
import { ecKey, named, rsaKey, withoutPrivate } from "../support/keys.ts";
import { type Script, entry, entryOf, reply, routed, served, servedSet } from "../support/simulated.ts";
import { compact, hmac, signature } from "../token/compact.ts";
import { type Verifier, jwksUri, outcome, verifierOf, warmVerifier } from "./setup.ts";

const issuer = "https://op.example";
const evil = "https://evil.example";
const attackersKey = named("a", ecKey("attacker"));
const rsaEntry = entryOf(named("rsa", rsaKey()), { alg: "RS256", use: "sig" });

const claims = { iss: issuer, aud: "rp", sub: "s", exp: Date.parse("2026-11-20T13:00:00Z") / 1000 };

const check = ({ keys, clock }: Verifier, token: string, options: Partial<VerifyOptions> = {}): Promise<string> =>
  outcome(async () => {
    const algorithms = ["ES256", "RS256", "PS256"];
    const verified = await verify(token, { keys, issuer, audience: "rp", algorithms, clock, ...options });
    return verified.claims.sub;
  });

const verifier = (): Promise<Verifier> => warmVerifier(servedSet([entry("a"), rsaEntry]));

const sign = (header: object, key: object = ecKey("a"), more: object = {}): string =>
  compact({ alg: "ES256", kid: "a", ...header }, { ...claims, ...more }, signature("ES256", key));

// What has no need of a key set, such as the alg none, is in test/token/verify.test.ts.

test("what is not an attack is accepted", async () => {
  assert.equal(await check(await verifier(), sign({})), "s");
  const rs256 = compact({ alg: "RS256", kid: "rsa" }, claims, signature("RS256", rsaKey()));
  assert.equal(await check(await verifier(), rs256), "s");
});

interface Row {
  readonly name: string;
  readonly input: string;
  readonly expect: string;
  /** Requests, all of them to the jwks_uri. */
  readonly requests?: number;
}

function table(title: string, rows: readonly Row[]): void {
  describe(title, () => {
    for (const { name, input, expect, requests = 0 } of rows) {
      test(name, async () => {
        const target = await verifier();
        assert.equal(await check(target, input), expect);
        assert.deepEqual(
          target.origin.requests.map(({ url }) => url),
          Array.from({ length: requests }, () => jwksUri),
        );
      });
    }
  });
}

const rsaPublic = createPublicKey({ key: withoutPrivate(rsaKey()), format: "jwk" });
/** The forms of a public key that an attacker may hope to be taken for a secret. */
const publicForms: Readonly<Record<string, string | Buffer>> = {
  "SPKI PEM": rsaPublic.export({ type: "spki", format: "pem" }),
  "SPKI PEM without its last line break": rsaPublic.export({ type: "spki", format: "pem" }).toString().trim(),
  "PKCS#1 PEM": rsaPublic.export({ type: "pkcs1", format: "pem" }),
  "SPKI DER": rsaPublic.export({ type: "spki", format: "der" }),
  "the entry as it is published": JSON.stringify(rsaEntry),
  "its modulus": Buffer.from(rsaEntry["n"] as string, "base64url"),
};

describe("algorithm confusion: a public RSA key as an HMAC secret (RFC 8725 section 2.1)", () => {
  for (const [form, secret] of Object.entries(publicForms)) {
    test(form, async () => {
      for (const alg of ["HS256", "HS384", "HS512"]) {
        const token = compact({ alg, kid: "rsa" }, claims, hmac(alg, secret));
        const target = await verifier();
        assert.equal(await check(target, token), "ERR_TOKEN_ALG");
        // The key set itself does not rely on the list of its caller.
        await assert.rejects(jose.jwtVerify(token, target.keys), { code: "ERR_TOKEN_ALG" });
        assert.equal(target.origin.requests.length, 0);
      }
    });
  }
});

const attackersJwk = withoutPrivate(attackersKey);

table("keys in the header of the token (RFC 8725 section 3.10): nobody is asked for them", [
  { name: "jwk, with a known kid", input: sign({ jwk: attackersJwk }, attackersKey), expect: "ERR_TOKEN_SIGNATURE" },
  {
    name: "jwk, with an unknown kid",
    input: sign({ jwk: { ...attackersJwk, kid: "x" }, kid: "x" }, attackersKey),
    expect: "ERR_TOKEN_KID_UNKNOWN",
    requests: 1,
  },
  {
    name: "jwk, without a kid",
    input: sign({ jwk: attackersJwk, kid: undefined }, attackersKey),
    expect: "ERR_TOKEN_KID_MISSING",
  },
  { name: "jku", input: sign({ jku: `${evil}/jwks` }, attackersKey), expect: "ERR_TOKEN_SIGNATURE" },
  {
    name: "jku, with an unknown kid",
    input: sign({ jku: `${evil}/jwks`, kid: "x" }, attackersKey),
    expect: "ERR_TOKEN_KID_UNKNOWN",
    requests: 1,
  },
  { name: "x5u", input: sign({ x5u: `${evil}/cert` }, attackersKey), expect: "ERR_TOKEN_SIGNATURE" },
  {
    name: "x5u, without a kid",
    input: sign({ x5u: `${evil}/cert`, kid: undefined }, attackersKey),
    expect: "ERR_TOKEN_KID_MISSING",
  },
  { name: "x5c", input: sign({ x5c: ["AAAA"] }, attackersKey), expect: "ERR_TOKEN_SIGNATURE" },
  {
    name: "a valid token with a jku is valid, and its jku not asked for",
    input: sign({ jku: `${evil}/jwks` }),
    expect: "s",
  },
]);

table("a kid that is meant for something else (RFC 8725 section 3.10)", [
  ...["../../../../dev/null", `${evil}/jwks`, "' OR 1=1 --", "__proto__", "constructor", "a\u0000", "*"].map(
    (kid): Row => {
      return {
        name: JSON.stringify(kid),
        input: sign({ kid }, attackersKey),
        expect: "ERR_TOKEN_KID_UNKNOWN",
        requests: 1,
      };
    },
  ),
  ...[["a"], { toString: "a" }, 0, true, null].map((kid): Row => {
    return { name: JSON.stringify(kid), input: sign({ kid }), expect: "ERR_TOKEN_KID_MISSING" };
  }),
]);

describe("an oversized token", () => {
  test("is refused before anything is read of it", async () => {
    const target = await verifier();
    for (const token of ["x".repeat(16_385), `${sign({ kid: "x" })}${"A".repeat(16_384)}`, ".".repeat(100_000_000)]) {
      assert.equal(await check(target, token), "ERR_TOKEN_TOO_LARGE");
    }
    assert.equal(target.origin.requests.length, 0);
  });

  test("of the largest size is verified", async () => {
    const target = await verifier();
    const room = (16_384 - sign({}, ecKey("a"), { pad: "" }).length) * 0.75;
    const token = sign({}, ecKey("a"), { pad: "x".repeat(Math.floor(room)) });
    assert.ok(token.length > 16_380 && token.length <= 16_384, String(token.length));
    assert.equal(await check(target, token), "s");
  });
});

describe("an oversized set, or key", () => {
  const token = compact({ alg: "RS256", kid: "rsa" }, claims, signature("RS256", rsaKey()));
  const rows: [name: string, jwks: readonly unknown[], expect: string][] = [
    ["too many bytes", [rsaEntry, "x".repeat(262_144)], "ERR_FETCH_TOO_LARGE"],
    ["too many keys", Array.from({ length: 257 }, () => rsaEntry), "ERR_FETCH_BODY"],
    [
      "a modulus of 16384 bits",
      [{ ...rsaEntry, n: Buffer.alloc(2_048, 0xff).toString("base64url") }],
      "ERR_TOKEN_KID_UNKNOWN",
    ],
    [
      "a modulus of a megabit",
      [{ ...rsaEntry, n: Buffer.alloc(131_072, 0xff).toString("base64url") }],
      "ERR_TOKEN_KID_UNKNOWN",
    ],
    ["an exponent of 2048 bits", [{ ...rsaEntry, e: rsaEntry["n"] }], "ERR_TOKEN_KID_UNKNOWN"],
    [
      "a good key beside them",
      [{ kty: "RSA", kid: "x", e: "AQAB", n: Buffer.alloc(2_048, 0xff).toString("base64url") }, rsaEntry],
      "s",
    ],
  ];
  for (const [name, jwks, expect] of rows) {
    test(`${name}: ${expect}`, async () => {
      assert.equal(await check(verifierOf(servedSet(jwks)), token), expect);
    });
  }
});

test("a duplicate kid, added by whoever can add to a set, lets neither key verify", async () => {
  const target = verifierOf(servedSet([entry("a"), { ...attackersJwk, kid: "a", alg: "ES256" }, rsaEntry]));
  assert.equal(await check(target, sign({}, attackersKey)), "ERR_TOKEN_KID_UNKNOWN");
  assert.equal(await check(target, sign({})), "ERR_TOKEN_KID_UNKNOWN");
});

const metadata = (of: string): Script => reply(200, JSON.stringify({ issuer: of, jwks_uri: `${of}/jwks` }));

describe("cache poisoning across issuers: two key sets, two issuers, one kid", () => {
  const both = routed({
    [`${issuer}/.well-known/openid-configuration`]: metadata(issuer),
    [`${evil}/.well-known/openid-configuration`]: metadata(evil),
    [`${issuer}/jwks`]: served(["a"]),
    [`${evil}/jwks`]: servedSet([entryOf(attackersKey)]),
  });
  const good = verifierOf(both, { issuer });
  const bad = verifierOf(both, { issuer: evil });
  const forged = sign({}, attackersKey);

  test("each verifies its own tokens only, whoever was asked first", async () => {
    assert.equal(await check(bad, sign({}, attackersKey, { iss: evil }), { issuer: evil }), "s");
    assert.equal(await check(good, forged), "ERR_TOKEN_SIGNATURE");
    assert.equal(await check(good, sign({})), "s");
    assert.equal(await check(bad, sign({}, ecKey("a"), { iss: evil }), { issuer: evil }), "ERR_TOKEN_SIGNATURE");
  });

  test("a token of one is not taken for one of the other", async () => {
    assert.equal(await check(good, sign({}, ecKey("a"), { iss: evil })), "ERR_TOKEN_CLAIM");
    assert.equal(await check(bad, forged, { issuer: evil }), "ERR_TOKEN_CLAIM");
  });

  test("nor is the stored state", async () => {
    const state = bad.keys.state() as KeySetState;
    const target = verifierOf(both, { issuer, state });
    assert.equal(await check(target, forged), "ERR_TOKEN_SIGNATURE");
  });

  test("nor a discovery document", async () => {
    const copied = verifierOf(routed({ [`${issuer}/.well-known/openid-configuration`]: metadata(evil) }), { issuer });
    assert.equal(await check(copied, forged), "ERR_DISCOVERY_ISSUER");
    assert.equal(copied.origin.requests.length, 1);
  });
});
