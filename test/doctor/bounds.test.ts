import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Exchange, type Observations, codes, examine } from "../../src/doctor/index.ts";
import { breaksOf } from "../../src/doctor/verifiers/breaks.ts";
import { quoted, shown } from "../../src/doctor/format.ts";
import { rsaKey, withoutPrivate } from "../support/keys.ts";
import { authorityCertificate, certificate } from "./certificates.ts";
import { asSet, at, bytes, issuer, observed, published, response, sound } from "./observed.ts";

const codesOf = async (observations: Observations): Promise<string[]> =>
  (await examine(observations)).map(({ code }) => code);
const day = 24 * 3600 * 1000;

const withExponent = (e: string): Promise<string[]> => {
  const rsa = { ...withoutPrivate(rsaKey()), e, kid: "rsa", alg: "RS256", use: "sig" };
  const document = { id_token_signing_alg_values_supported: ["ES256", "RS256"] };
  return codesOf(observed({ keys: [sound, rsa], document }));
};

const aged = (days: number): Promise<string[]> => {
  const made = new Date(at - days * day).toISOString().slice(0, 10);
  return codesOf(observed({ keys: [published(`key-${made}`)] }));
};

const rsaSet = (more: object, rest: Partial<Observations> = {}): Promise<string[]> => {
  const rsa = { ...withoutPrivate(rsaKey()), kid: "rsa", alg: "RS256", use: "sig", ...more };
  const document = { id_token_signing_alg_values_supported: ["ES256", "RS256"] };
  return codesOf(observed({ keys: [sound, rsa], document, rest }));
};
const hexOf = (text: unknown): string => Buffer.from(text as string, "base64url").toString("hex");

describe("what is not what it looks like", () => {
  test("a modulus of 1, or of a few bits, is short, and has no fingerprint", async () => {
    assert.deepEqual(await rsaSet({ n: "AQ" }), ["JWKS_RSA_SHORT"]);
    assert.deepEqual(await rsaSet({ n: "Iw" }), ["JWKS_RSA_SHORT"]);
  });

  test("of a bundle of SPIFFE, only keys of tokens need a kid", async () => {
    const { kid: _, ...nameless } = published("svid");
    assert.deepEqual(await codesOf(observed({ keys: [sound, { ...nameless, use: "x509-svid" }] })), []);
    assert.deepEqual(await codesOf(asSet(observed({ keys: [{ ...nameless, use: "jwt-svid" }] }))), [
      "JWKS_KID_MISSING",
    ]);
    assert.deepEqual(await codesOf(observed({ keys: [{ ...nameless, use: "x509-svid" }] })), []);
  });

  test("a hex digest is told from one of another certificate, plain and encoded once more", async () => {
    const digests = certificate(rsaKey());
    const hex = hexOf(digests.x5t);
    assert.deepEqual(await rsaSet({ ...digests, x5t: hex }), ["JWKS_X5T_HEX"]);
    assert.deepEqual(await rsaSet({ ...digests, x5t: Buffer.from(hex).toString("base64url") }), ["JWKS_X5T_HEX"]);
    assert.deepEqual(await rsaSet({ ...digests, x5t: digests["x5t#S256"] }), ["JWKS_X5T_SIZE"]);
  });

  test("a certificate of the next one's key chains, and one alone needs no other", async () => {
    const { x5c } = certificate(rsaKey());
    assert.deepEqual(await rsaSet({ x5c: [...x5c, authorityCertificate()] }), []);
    assert.deepEqual(await rsaSet({ x5c }), []);
  });

  test("metadata of an authorization server has the members of RFC 8414 section 2, and not those of OpenID Connect", async () => {
    const openId = ["subject_types_supported", "id_token_signing_alg_values_supported"];
    const login = {
      authorization_endpoint: `${issuer}/a`,
      token_endpoint: `${issuer}/t`,
      response_types_supported: ["code"],
    };
    const at = async (name: string, more: object): Promise<unknown> => {
      const document = { ...login, id_token_signing_alg_values_supported: undefined, ...more };
      const found = await examine(observed({ document, discovery: { url: `${issuer}/.well-known/${name}` } }));
      return found.find(({ code }) => code === "DISCOVERY_MEMBERS_MISSING")?.seen[0];
    };
    assert.equal(await at("openid-configuration", {}), openId.join(", "));
    assert.equal(await at("oauth-authorization-server", {}), undefined);
    assert.equal(
      await at("oauth-authorization-server", { response_types_supported: undefined }),
      "response_types_supported",
    );
    const direct = { authorization_endpoint: undefined, grant_types_supported: ["client_credentials"] };
    assert.equal(await at("oauth-authorization-server", direct), undefined);
    assert.match(String(await at("openid-configuration", direct)), /^authorization_endpoint, /);
  });

  test("a private member without a value is none, as serializers write it", async () => {
    for (const empty of [{ d: null }, { d: "" }, { d: null, p: "", oth: [], k: undefined }])
      assert.deepEqual(await codesOf(observed({ keys: [{ ...sound, ...empty }] })), []);
    for (const full of [{ d: 7 }, { oth: [{}] }, { k: "secret" }])
      assert.deepEqual(await codesOf(observed({ keys: [{ ...sound, ...full }] })), ["JWKS_PRIVATE_MEMBERS"]);
  });

  test("a set of encryption keys alone is told as such", async () => {
    const key = { ...withoutPrivate(rsaKey()), kid: "enc", use: "enc", alg: "RSA-OAEP-256" };
    assert.deepEqual(await codesOf(observed({ keys: [key] })), ["JWKS_NO_SIGNING_KEY", "JWKS_ENCRYPTION_KEY"]);
  });

  test("a prime of the blocklist is found in a modulus, and a modulus of it is known", async () => {
    const { p, n } = rsaKey();
    assert.deepEqual(await rsaSet({}, { blocklist: new Set([hexOf(p)]) }), ["JWKS_RSA_SHARED_PRIME"]);
    assert.deepEqual(await rsaSet({}, { blocklist: new Set([hexOf(n)]) }), ["JWKS_KEY_KNOWN"]);
    assert.deepEqual(await rsaSet({}, { blocklist: new Set(["f".repeat(64)]) }), []);
  });

  test("a Content-Type of text, and a leading zero, break none of the verifiers that were run", () => {
    for (const code of ["HTTP_MEDIA_TYPE", "DISCOVERY_MEDIA_TYPE", "JWKS_RSA_LEADING_ZERO"] as const) {
      assert.notEqual(codes[code].severity, "broken");
      assert.ok(breaksOf(code).every(({ source }) => source !== undefined));
    }
  });
});

const slow = (waitMs: number): Promise<string[]> => codesOf(observed({ set: { waitMs } }));

describe("a value at its bound is on the good side", () => {
  test("an RSA exponent of 32 bits is usual, one of 33 is not", async () => {
    assert.deepEqual(await withExponent("_____w"), []);
    assert.deepEqual(await withExponent("AQAAAAE"), ["JWKS_RSA_EXPONENT_LARGE"]);
  });

  test("a kid of 60 characters is quoted whole, of a longer one its first 60, and no name of 40", () => {
    assert.equal(quoted("x".repeat(60)), `"${"x".repeat(60)}"`);
    assert.equal(quoted("x".repeat(61)), `"${"x".repeat(60)}…"`);
    assert.equal(shown("x".repeat(39)), `"${"x".repeat(39)}"`);
    assert.equal(shown("x".repeat(40)), "(a text of 40 characters)");
  });

  test("the same keys in another order are no difference between IPv4 and IPv6, and what is no set is one", async () => {
    const [a, b] = [published("a"), published("b")];
    const over = (ipv4: unknown, ipv6: unknown): Promise<string[]> => {
      const probes: Record<string, Exchange> = { ipv4: response(bytes(ipv4)), ipv6: response(bytes(ipv6)) };
      return codesOf(observed({ keys: [a, b], probes }));
    };
    assert.deepEqual(await over({ keys: [a, b] }, { keys: [b, a] }), []);
    assert.deepEqual(await over({ keys: [a, b] }, { keys: [b] }), ["HTTP_ADDRESSES_DIFFER"]);
    assert.deepEqual(await over("no set", "no set either"), ["HTTP_ADDRESSES_DIFFER"]);
  });

  test("a median of 250 ms is not slow, and one of 500 ms is not the worse of the two", async () => {
    assert.deepEqual(await slow(250), []);
    assert.deepEqual(await slow(251), ["HTTP_SLOW_250"]);
    assert.deepEqual(await slow(500), ["HTTP_SLOW_250"]);
    assert.deepEqual(await slow(501), ["HTTP_SLOW_500"]);
  });

  test("a signing key whose kid is a date is old after a year, and not before", async () => {
    assert.deepEqual(await aged(364), []);
    assert.deepEqual(await aged(367), ["JWKS_ONE_OLD_KEY"]);
  });
});
