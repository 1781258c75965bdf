import { createPrivateKey, getDiffieHellman } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Code } from "../../src/doctor/index.ts";
import { smallFactor } from "../../src/doctor/number-theory.ts";
import type { Failure, HttpExchange, Observations, SetFetch } from "../../src/doctor/observations.ts";
import { type PrivateJwk, ecKey, rfc7515Key, rsaKey, withoutPrivate } from "../support/keys.ts";
import { authorityCertificate, certificate } from "./certificates.ts";
import { type Changes, at, bytes, issuer, jwksUri, observed, published, response, sound } from "./observed.ts";

/** A provider with one fault. */
export interface Fixture {
  readonly code: Code;
  /** Form of the fault, if the code has several fixtures. */
  readonly about?: string;
  readonly observations: Observations;
  /** Private half of the faulty key; clients are tested with its tokens. */
  readonly signs?: { readonly key: object; readonly alg: string; readonly kid?: unknown };
  /** Whether tokens name the key that signs them. Default: `true`. */
  readonly namesKeys?: false;
  /** Response of a server that depends on the request. Default: the observed one. */
  readonly answers?: (headers: Readonly<Record<string, string | undefined>>) => Partial<HttpExchange>;
  /** URL by which relying parties know an issuer. Default: the URL that serves the document. */
  readonly asked?: (issuer: string) => string;
  /** Members of the discovery document, if the fault is there. The set is also served at a plain http URL. */
  readonly metadata?: (issuer: string, plain: string) => Readonly<Record<string, unknown>>;
}

export type WeakKey = "roca" | "closePrimes" | "sharedOne" | "sharedOther" | "smallFactor" | "short";
/** RSA keys that no sound generator creates: private JWKs, for tests only. */
export const weak = JSON.parse(readFileSync(new URL("weak-keys.json", import.meta.url), "utf8")) as Record<
  WeakKey,
  PrivateJwk
>;

/** The public key for CVE-2008-0166 that test suites use. */
const debianModulus =
  "wJZTDExKND_DiP-LbhTIi2F0hZZt0PdX897LLwPf3-b1GOCUj1OHBZvVqhJPJtOPE53W68I0NgVhaJdY6bFOA_cUUIFnN0y_ZOJOJsPNle1aXQTjxAS-FXu4CQ6a2pzcU-9-gGwed7XxAkIVCiTprfmRCI2vIKdb61S8kf5D3YdVRH_Tq977nxyYeosEGYJFBOIT-N0mqca37S8hA9hCJyD3p0AM40dD5M5ARAxpAT7-oqOXkPzfzLtCTaHYJK3-WAce121Br4NuQJPqYPVxniUPohT4YxFTqB7vwX2C4_gZ2ldpHtlgJVAHT96nOsnlz-EPa5GtwxtALD43CwOlWQ";

const ec = ecKey("odd");
const rsa = rsaKey();
const kid = "odd";
const algs = ["ES256", "RS256"];

/** Returns a set with an odd key next to a sound one. */
function withKey(
  code: Code,
  jwk: Readonly<Record<string, unknown>>,
  signs?: Fixture["signs"],
  about?: string,
  rest: Partial<Observations> = {},
): Fixture {
  const listed = Object.fromEntries(
    Object.entries({ kid, use: "sig", ...jwk }).filter(([, value]) => value !== undefined),
  );
  const document = { id_token_signing_alg_values_supported: typesOf([sound, listed]) };
  return {
    code,
    observations: observed({ keys: [sound, listed], document, rest }),
    ...(signs && { signs }),
    ...(about !== undefined && { about }),
  };
}

/** Returns the algorithms that a provider with these keys advertises. */
function typesOf(keys: readonly Readonly<Record<string, unknown>>[]): string[] {
  const usual = { EC: "ES256", RSA: "RS256" };
  const algs = keys
    .filter(({ use, key_ops: operations }) => use === "sig" && !Array.isArray(operations))
    .map(({ kty, alg }) => (typeof alg === "string" ? alg : usual[kty as "EC" | "RSA"]));
  return [...new Set(algs)].filter((alg) => /^(ES|RS\d|Ed|ML)/.test(alg));
}

const seconds = (date: string): number => Date.parse(date) / 1000;
const ofEc = (key: object) => ({ ...withoutPrivate(key), alg: "ES256" });
const ofRsa = (key: object) => ({ ...withoutPrivate(key), alg: "RS256" });
const [publicEc, publicRsa] = [ofEc(ec), ofRsa(rsa)];
const signsEc = { key: ec, alg: "ES256" };
const signsRsa = { key: rsa, alg: "RS256" };
const buffer = (text: unknown): Buffer => Buffer.from(text as string, "base64url");
const padded = (size: number, text: unknown): string =>
  Buffer.concat([Buffer.alloc(size - buffer(text).length), buffer(text)]).toString("base64url");

/** Returns the first generated key with a property. */
function keyThat(is: (key: PrivateJwk) => boolean): PrivateJwk {
  for (let seed = 0; ; seed += 1) {
    const key = ecKey(`that ${seed}`);
    if (is(key)) return key;
  }
}
/** A key whose coordinate begins with a zero, which the encoder has dropped. */
const short = keyThat(({ x }) => buffer(x)[0] === 0);
/** A key whose coordinates have characters in base64 that base64url does not have. */
const plus = keyThat(({ x = "" }) => /[-_]/.test(x));
const ed448 = { kty: "OKP", crv: "Ed448", x: Buffer.alloc(57, 7).toString("base64url"), alg: "EdDSA" };

const integer = (text: unknown): bigint => BigInt(`0x${buffer(text).toString("hex")}`);
const ed25519 = { kty: "OKP", crv: "Ed25519", alg: "EdDSA" };
const littleEndian = (value: bigint): string =>
  Buffer.from([...Buffer.from(value.toString(16).padStart(64, "0"), "hex")].toReversed()).toString("base64url");
const base64url = (value: bigint): string => {
  const hex = value.toString(16);
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex").toString("base64url");
};

/** The prime of a 2048-bit Diffie-Hellman group. @see RFC 3526 section 3 */
const primeModulus = BigInt(`0x${getDiffieHellman("modp14").getPrime("hex")}`);

/** Multiplies two numbers that consist of short pieces, as a broken generator does. */
function polynomial(width: bigint, seed = 1n): bigint {
  const number = (start: bigint, pieces: bigint): bigint => {
    let value = (1n << (pieces * width - 1n)) | 1n;
    for (let piece = 0n; piece < pieces; piece += 1n) value |= ((piece * 97n + start) % 61n) << (piece * width);
    return value;
  };
  const modulus = number(seed, 1024n / width) * number(seed + 40n, 1024n / width + 1n);
  return smallFactor(modulus) === undefined ? modulus : polynomial(width, seed + 1n);
}

/** Returns a modulus with a repeated byte. */
function repeating(text: unknown): bigint {
  const n = buffer(text);
  let modulus = integer(
    Buffer.concat([n.subarray(0, 100), Buffer.alloc(16, 0x5a), n.subarray(116)]).toString("base64url"),
  );
  while (smallFactor(modulus) !== undefined) modulus += 2n;
  return modulus;
}

/** Below a third of the fourth root of a modulus of 2048 bits. */
const smallExponent = 2n ** 500n + 297n;

/** Returns the public exponent for a private one, by Euclid's algorithm. */
function exponentOf(d: bigint): bigint {
  const phi = (integer(rsa["p"]) - 1n) * (integer(rsa["q"]) - 1n);
  let [value, other, factor, otherFactor] = [d, phi, 1n, 0n];
  while (other !== 0n) {
    const quotient = value / other;
    [value, other, factor, otherFactor] = [other, value % other, otherFactor, factor - quotient * otherFactor];
  }
  if (value !== 1n) return exponentOf(d + 2n);
  return ((factor % phi) + phi) % phi;
}

const ownDigests = certificate(ec);
const otherDigests = certificate(ecKey("another"));
const encodedHex = (digest: string): string => Buffer.from(buffer(digest).toString("hex")).toString("base64url");

const inBase64 = { ...ofEc(plus), x: buffer(plus["x"]).toString("base64").replaceAll("=", "") };
const cutOff = { ...ofEc(short), x: buffer(short["x"]).subarray(1).toString("base64url") };
const broken = (text = ""): string => `${text.slice(0, 64)}\n${text.slice(64)}`;
const orderOf8 = 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n;
const certified = { ...publicEc, ...ownDigests };
const chain = [...ownDigests.x5c, ...otherDigests.x5c];

const keys: readonly Fixture[] = [
  withKey("JWKS_PRIVATE_MEMBERS", { ...ec, alg: "ES256" }, signsEc, "EC"),
  withKey("JWKS_PRIVATE_MEMBERS", { ...rsa, alg: "RS256" }, signsRsa, "RSA"),
  withKey("JWKS_OCT", { kty: "oct", k: "c2VjcmV0", alg: "HS256" }),
  withKey("JWKS_MEMBER_MISSING", { kty: "oct", alg: "HS256", use: undefined }, undefined, "k of a symmetric key"),
  withKey("JWKS_KTY_MISSING", { ...publicEc, kty: undefined }, signsEc),
  withKey("JWKS_KTY_UNKNOWN", { kty: "XYZ", x: "AQAB" }),
  withKey("JWKS_KTY_AKP", { kty: "AKP", alg: "ML-DSA-65", pub: Buffer.alloc(1952, 1).toString("base64url") }),
  withKey("JWKS_EC_CURVE_UNKNOWN", { kty: "EC", crv: "secp256k1", x: ec.x, y: ec.y, alg: "ES256K" }),
  withKey("JWKS_OKP_CURVE", ed448, undefined, "Ed448"),
  withKey("JWKS_OKP_CURVE", { kty: "OKP", crv: "X448", x: ed448.x, use: "enc", alg: "ECDH-ES" }, undefined, "X448"),
  withKey("JWKS_OKP_CURVE", { kty: "OKP", crv: "P-999", x: ed448.x }, undefined, "an unknown curve"),
  withKey("JWKS_MEMBER_MISSING", { ...publicEc, y: undefined }, signsEc, "y"),
  withKey("JWKS_MEMBER_MISSING", { ...publicRsa, e: 65_537 }, signsRsa, "e as a number"),
  withKey("JWKS_MEMBER_TOO_LONG", { ...publicRsa, n: "A".repeat(20_000) }, signsRsa, "RSA"),
  withKey("JWKS_BASE64URL_PADDING", { ...publicEc, x: `${ec.x}=` }, signsEc),
  withKey("JWKS_BASE64URL_ALPHABET", inBase64, { key: plus, alg: "ES256" }, "+ and /"),
  withKey("JWKS_BASE64URL_ALPHABET", { ...publicRsa, n: broken(rsa["n"]) }, signsRsa, "line break"),
  withKey("JWKS_BASE64URL_LENGTH", { ...publicRsa, n: `${rsa["n"]}AAA` }, signsRsa, "three extra characters"),
  withKey("JWKS_BASE64URL_BITS", { ...publicEc, x: withBits(ec.x) }, signsEc),
  withKey("JWKS_ALG_MISSING", { ...publicEc, alg: undefined }, signsEc, "EC"),
  withKey("JWKS_ALG_MISSING", { ...publicRsa, alg: undefined }, signsRsa, "RSA"),
  withKey("JWKS_ALG_MISMATCH", { ...publicEc, alg: "RS256" }, signsEc, "for a different key type"),
  withKey("JWKS_ALG_MISMATCH", { ...publicRsa, alg: "RSA" }, signsRsa, "not an algorithm"),
  withKey("JWKS_USE_ALG_CONTRADICT", { ...publicRsa, alg: "RS256", use: "enc" }, signsRsa, "enc and RS256"),
  withKey("JWKS_USE_KEY_OPS_CONTRADICT", { ...publicEc, key_ops: ["deriveBits"] }, signsEc),
  withKey("JWKS_KEY_OPS_PRIVATE", { ...publicEc, key_ops: ["sign"] }, signsEc),
  withKey("JWKS_KEY_OPS_TYPE", { ...publicEc, key_ops: "verify" }, signsEc),
  withKey("JWKS_USE_UNKNOWN", { ...publicEc, use: "signature" }, signsEc, "a word"),
  withKey("JWKS_USE_UNKNOWN", { ...publicEc, use: "SIG" }, signsEc, "upper case"),
  withKey("JWKS_USE_UNKNOWN", { ...publicEc, use: ["sig"] }, signsEc, "a list"),
  withKey("JWKS_USE_UNKNOWN", { ...publicEc, use: "jwt-svid" }, signsEc, "SPIFFE, at an issuer"),
  withKey("JWKS_KEY_OPS_NO_VERIFY", { ...publicEc, key_ops: [], use: undefined }, signsEc, "empty"),
  withKey("JWKS_KEY_OPS_NO_VERIFY", { ...publicRsa, key_ops: ["encrypt"], use: undefined }, signsRsa, "encrypt"),
  withKey("JWKS_ENCRYPTION_KEY", { ...publicRsa, use: "enc", alg: "RSA-OAEP" }),
  withKey("JWKS_KEY_EXPIRED", { ...publicEc, exp: seconds("2026-11-19") }, signsEc, "exp"),
  withKey("JWKS_KEY_EXPIRED", { ...publicEc, nbf: seconds("2026-12-19") }, signsEc, "nbf"),
  withKey("JWKS_KEY_EXPIRED", { ...publicEc, revoked: { revoked_at: seconds("2026-11-19") } }, signsEc, "revoked"),
  withKey("JWKS_KEY_KNOWN", { kty: "RSA", n: debianModulus, e: "AQAB", alg: "RS256" }, undefined, "CVE-2008-0166"),
  withKey("JWKS_KEY_KNOWN", ofEc(rfc7515Key), undefined, "RFC 7515 appendix A.3"),
  withKey("JWKS_EC_COORDINATE_LENGTH", cutOff, { key: short, alg: "ES256" }, "shorter"),
  withKey("JWKS_EC_COORDINATE_LENGTH", { ...publicEc, y: padded(33, ec.y) }, signsEc, "longer"),
  withKey("JWKS_EC_OFF_CURVE", { ...publicEc, y: ec.x }, signsEc),
  withKey("JWKS_OKP_LENGTH", { ...ed25519, x: Buffer.alloc(31, 1).toString("base64url") }),
  withKey("JWKS_OKP_OFF_CURVE", { ...ed25519, x: littleEndian(2n) }),
  withKey("JWKS_OKP_SMALL_ORDER", { ...ed25519, x: littleEndian(1n) }, undefined, "the identity point"),
  withKey("JWKS_OKP_SMALL_ORDER", { ...ed25519, x: littleEndian(orderOf8) }, undefined, "order 8"),
  withKey("JWKS_RSA_LEADING_ZERO", { ...publicRsa, n: padded(257, rsa["n"]) }, signsRsa, "n"),
  withKey("JWKS_RSA_LEADING_ZERO", { ...publicRsa, e: "AAEAAQ" }, signsRsa, "e"),
  withKey("JWKS_RSA_SHORT", ofRsa(weak.short), { key: weak.short, alg: "RS256" }),
  withKey("JWKS_RSA_LARGE", { ...publicRsa, n: Buffer.alloc(1025, 255).toString("base64url") }),
  withKey("JWKS_RSA_EXPONENT", { ...publicRsa, e: "AQ" }, undefined, "1"),
  withKey("JWKS_RSA_EXPONENT", { ...publicRsa, e: "AQAA" }, undefined, "even"),
  withKey("JWKS_RSA_EXPONENT_LARGE", { ...publicRsa, e: "AQAAAAE" }),
  withKey("JWKS_RSA_ROCA", ofRsa(weak.roca), { key: weak.roca, alg: "RS256" }),
  withKey("JWKS_RSA_FACTORABLE", ofRsa(weak.closePrimes), { key: weak.closePrimes, alg: "RS256" }, "close primes"),
  withKey("JWKS_RSA_DAMAGED", ofRsa(weak.smallFactor), undefined, "a small factor"),
  withKey("JWKS_RSA_FACTORABLE", { ...publicRsa, n: base64url(primeModulus) }, undefined, "a prime"),
  withKey("JWKS_RSA_SMALL_PRIVATE_EXPONENT", { ...publicRsa, e: base64url(exponentOf(smallExponent)) }),
  withKey("JWKS_RSA_FACTORABLE", { ...publicRsa, n: base64url(polynomial(32n)) }, undefined, "32-bit pieces"),
  withKey("JWKS_RSA_FACTORABLE", { ...publicRsa, n: base64url(polynomial(128n)) }, undefined, "128-bit pieces"),
  withKey("JWKS_RSA_DAMAGED", { ...publicRsa, n: base64url(repeating(rsa["n"])) }, undefined, "a repeated byte"),
  withKey("JWKS_X5C_CHAIN", { ...publicEc, x5c: chain }, signsEc, "for other keys"),
  withKey("JWKS_X5C_CHAIN", { ...publicEc, x5c: [...chain, authorityCertificate()] }, signsEc, "in the wrong order"),
  withKey("JWKS_X5U_HTTP", { ...publicEc, x5u: "http://login.example.com/certificate.pem" }, signsEc),
  withKey("JWKS_X5C_MISMATCH", { ...publicEc, x5c: otherDigests.x5c }, signsEc),
  withKey("JWKS_X5C_FORMAT", { ...publicEc, x5c: ["-----BEGIN CERTIFICATE-----"] }, signsEc, "PEM"),
  withKey("JWKS_X5C_FORMAT", { ...publicEc, x5c: [""] }, signsEc, "empty"),
  withKey("JWKS_X5C_FORMAT", { ...publicEc, x5c: ["AQAB"] }, signsEc, "not a certificate"),
  withKey("JWKS_X5C_EXPIRED", { ...publicEc, x5c: certificate(ec, { to: "2026-11-19" }).x5c }, signsEc, "expired"),
  withKey(
    "JWKS_X5C_EXPIRED",
    { ...publicEc, x5c: certificate(ec, { from: "2027-01-01" }).x5c },
    signsEc,
    "not yet valid",
  ),
  withKey("JWKS_X5T_MISMATCH", { ...certified, x5t: otherDigests.x5t }, signsEc, "x5t of a different certificate"),
  withKey(
    "JWKS_X5T_MISMATCH",
    { ...certified, "x5t#S256": otherDigests["x5t#S256"] },
    signsEc,
    "x5t#S256 of a different certificate",
  ),
  withKey("JWKS_X5T_MISMATCH", { ...publicEc, x5t: "AAAA" }, signsEc, "a 3-byte x5t"),
  withKey("JWKS_X5T_MISMATCH", { ...certified, "x5t#S256": ownDigests.x5t }, signsEc, "a 20-byte x5t#S256"),
  withKey("JWKS_X5T_HEX", { ...certified, x5t: encodedHex(ownDigests.x5t) }, signsEc, "encoded twice"),
  withKey("JWKS_KID_TYPE", { ...publicEc, kid: 7 }, { ...signsEc, kid: 7 }),
];

/** Sets the two unused bits in the last character of 32 bytes. */
function withBits(text: string): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return `${text.slice(0, -1)}${alphabet[alphabet.indexOf(text.at(-1) as string) + 1]}`;
}

const set = (code: Code, body: unknown, about?: string): Fixture => ({
  code,
  observations: observed({ body: body instanceof Uint8Array ? body : bytes(body), rest: { certificates: {} } }),
  ...(about !== undefined && { about }),
});

const bytesOf = (text: string): Uint8Array => Buffer.from(text);
/** A duplicate member. Most parsers take the last value, which is the same here. */
const twice = bytesOf(
  JSON.stringify({ keys: [sound, published("odd")] }).replace(/"use"(?!.*"use")/, '"alg":"ES256","use"'),
);
const leaked = createPrivateKey({ key: ecKey("leaked"), format: "jwk" });
const privatePem = leaked.export({ type: "pkcs8", format: "pem" }) as string;
const privateDer = leaked.export({ type: "pkcs8", format: "der" }).toString("base64");

const shared = [weak.sharedOne, weak.sharedOther].map((key, index) => published(`shared ${index}`, key, "RS256"));

const sets: readonly Fixture[] = [
  set("JWKS_NOT_JSON", "<!doctype html>"),
  set("JWKS_KEYS_MISSING", { jwks: [] }, "missing"),
  set("JWKS_KEYS_MISSING", [sound], "an array"),
  set("JWKS_KEYS_NOT_LIST", { keys: { sound } }),
  set("JWKS_KEYS_EMPTY", { keys: [] }),
  set("JWKS_MEMBER_NOT_OBJECT", { keys: [sound, "a string"] }, "a string"),
  set("JWKS_MEMBER_NOT_OBJECT", { keys: [null, sound] }, "null"),
  set("JWKS_KEYS_MANY", { keys: [sound, ...Array.from({ length: 100 }, (_, index) => published(`kid ${index}`))] }),
  { ...set("JWKS_KID_MISSING", { keys: [sound, { ...publicEc, use: "sig" }] }), signs: { ...signsEc, kid: undefined } },
  { ...set("JWKS_KID_EMPTY", { keys: [sound, { ...published("odd"), kid: "" }] }), signs: { ...signsEc, kid: "" } },
  {
    ...set("JWKS_KID_WHITESPACE", { keys: [sound, { ...published("odd"), kid: " " }] }, "blank"),
    signs: { ...signsEc, kid: " " },
  },
  {
    ...set("JWKS_KID_WHITESPACE", { keys: [sound, { ...published("odd"), kid: "odd " }] }, "a trailing space"),
    signs: { ...signsEc, kid: "odd " },
  },
  set("JWKS_ONE_KEY_NO_KID", { keys: [{ ...sound, kid: undefined }] }, "a token with a kid"),
  {
    ...set("JWKS_ONE_KEY_NO_KID", { keys: [{ ...sound, kid: undefined }] }, "a token without a kid"),
    namesKeys: false,
  },
  {
    ...set("JWKS_KID_DUPLICATE", {
      keys: [published("odd", ecKey("another")), { ...publicEc, kid, use: "sig" }, sound],
    }),
    signs: signsEc,
  },
  { ...set("JWKS_KEY_TWICE", { keys: [sound, published("odd"), published("odd")] }), signs: signsEc },
  {
    ...set("JWKS_KEY_TWO_KIDS", { keys: [sound, published("odd"), { ...published("odd"), kid: "other" }] }),
    signs: signsEc,
  },
  { ...set("JWKS_MEMBER_TWICE", twice, "in a key"), signs: signsEc },
  set("JWKS_MEMBER_TWICE", bytesOf(`{"keys":[],"keys":${JSON.stringify([sound])}}`), "keys"),
  set("JWKS_NO_SIGNING_KEY", { keys: [{ ...withoutPrivate(rsa), kid, key_ops: ["encrypt"] }] }),
  {
    ...set("JWKS_KID_CONFUSABLE", { keys: [sound, published("odd"), published("Odd")] }, "case"),
    signs: { key: ecKey("Odd"), alg: "ES256", kid: "Odd" },
  },
  set("JWKS_KID_CONFUSABLE", { keys: [sound, published("odd"), published("o dd")] }, "a space"),
  set("JWKS_KID_CONFUSABLE", { keys: [sound, published("Z\u00fcrich"), published("Zu\u0308rich")] }, "Unicode"),
  set("JWKS_PRIVATE_MEMBERS", { keys: [sound], ...ecKey("leaked") }, "next to the keys"),
  set("JWKS_PRIVATE_MEMBERS", { keys: [sound], backup: { deep: [ecKey("leaked")] } }, "nested"),
  set("JWKS_PRIVATE_MEMBERS", { keys: [{ ...sound, pem: privatePem }] }, "PEM in a member"),
  set(
    "JWKS_PRIVATE_MEMBERS",
    { keys: [{ ...sound, cert: [...certificate(ecKey("sound")).x5c, privateDer] }] },
    "next to a certificate",
  ),
  {
    code: "JWKS_RSA_MODULUS_TWICE",
    observations: observed({
      keys: [sound, published("one", rsa, "RS256"), { ...published("two", rsa, "RS256"), e: "Aw" }],
      document: { id_token_signing_alg_values_supported: algs },
    }),
  },
  set("JWKS_ONE_OLD_KEY", { keys: [published("key-2025-01-31")] }, "a date"),
  set("JWKS_ONE_OLD_KEY", { keys: [published("1700000000")] }, "a Unix time"),
  {
    code: "JWKS_RSA_SHARED_PRIME",
    observations: observed({
      keys: [sound, ...shared],
      document: { id_token_signing_alg_values_supported: algs },
    }),
  },
  set("HTTP_NOT_UTF8", Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), bytes({ keys: [sound] })]), "a byte order mark"),
  set("HTTP_NOT_UTF8", Buffer.from(JSON.stringify({ keys: [sound], name: "Zürich" }), "latin1"), "Latin-1"),
  set("HTTP_TOO_LARGE", { keys: [sound], notes: "x".repeat(51_200) }, "52 KiB"),
];

const http = (code: Code, changes: Changes, about?: string): Fixture => ({
  code,
  observations: observed(changes),
  ...(about !== undefined && { about }),
});

const good = observed();
const goodSet = good.set as HttpExchange;
const body = goodSet.body as Uint8Array;
const others = bytes({ keys: [published("elsewhere")] });
const failed = (kind: Failure["kind"], detail: string, more: Partial<HttpExchange> = {}) => ({
  failed: { failure: { kind, detail }, ...more },
});
const allProbes = Object.keys(good.probes ?? {});
const waiting = (waitMs: number): Changes => ({
  set: { waitMs },
  probes: Object.fromEntries(
    allProbes.map((name) => [name, { ...goodSet, waitMs, ...(name === "revalidate" && { status: 304 }) }]),
  ),
});

const unchanged = (headers: NonNullable<HttpExchange["headers"]>): HttpExchange => ({
  ...goodSet,
  status: 304,
  headers,
});
const lifetime = ["cache-control", "max-age=60"] as const;
const limited = response(bytes("slow down"), { "retry-after": "30" }, { status: 429 });

const endpoint: readonly Fixture[] = [
  http("HTTP_STATUS", { set: { status: 500, body: bytes("sorry") } }),
  http("HTTP_STATUS", failed("unreachable", "ECONNREFUSED"), "unreachable"),
  http("HTTP_STATUS", failed("protocol", "HPE_INVALID_CONSTANT"), "not HTTP"),
  http("HTTP_TIMEOUT", failed("timeout", "no whole response within 10 s")),
  http("HTTP_INCOMPLETE", failed("incomplete", "the body ends after 9 bytes")),
  http("HTTP_TOO_LARGE", failed("too-large", "more than 5,000,000 bytes"), "endless"),
  http("HTTP_MEDIA_TYPE", { headers: { "content-type": "text/plain; charset=utf-8" } }, "text"),
  http("HTTP_MEDIA_TYPE", { headers: { "content-type": undefined } }, "none"),
  {
    ...http("HTTP_NOT_ACCEPTABLE", { probes: { json: response(bytes("no"), {}, { status: 406 }) } }),
    answers: ({ accept = "" }) =>
      accept.includes("application/jwk-set+json") || accept === "*/*" ? {} : { status: 406 },
  },
  http("HTTP_SLOW_250", waiting(300)),
  http("HTTP_SLOW_500", waiting(600)),
  { ...http("HTTP_REDIRECT", { set: { redirects: [`${issuer}/old-jwks`] } }), answers: () => ({ status: 302 }) },
  http("HTTP_REDIRECT", failed("redirects", "there are more than 5", { redirects: [jwksUri] }), "loop"),
  http("HTTP_NO_CORS", { headers: { "access-control-allow-origin": undefined } }, "no origin"),
  {
    ...http("HTTP_USER_AGENT", { set: { status: 403, body: bytes("no") }, probes: { browser: goodSet } }, "a program"),
    answers: ({ "user-agent": agent = "" }) => (agent.startsWith("Mozilla/") ? {} : { status: 403 }),
  },
  {
    ...http("HTTP_USER_AGENT", { probes: { noAgent: response(bytes("no"), {}, { status: 403 }) } }, "none"),
    answers: ({ "user-agent": agent }) => (agent === undefined ? { status: 403 } : {}),
  },
  http("HTTP_NO_STORE", { headers: { "cache-control": "no-store" } }),
  http("HTTP_NO_LIFETIME", { headers: { "cache-control": undefined } }, "missing"),
  http("HTTP_NO_LIFETIME", { headers: { "cache-control": "no-cache" } }, "no-cache"),
  http("HTTP_NO_VALIDATOR", { headers: { etag: undefined } }),
  http("HTTP_ETAG_UNQUOTED", { headers: { etag: "a1" } }),
  http("HTTP_LIFETIME_LONG", { headers: { "cache-control": "public, max-age=1209600" } }, "two weeks"),
  http("HTTP_LIFETIME_LONG", { headers: { "cache-control": "max-age=60, s-maxage=31536000" } }, "in shared caches"),
  http("HTTP_IMMUTABLE", { headers: { "cache-control": "public, max-age=86400, immutable" } }),
  http("HTTP_AGE", { headers: { "cache-control": "public, max-age=600", age: "4000" } }, "longer than the lifetime"),
  http("HTTP_PRIVATE", { headers: { "cache-control": "private, max-age=600" } }),
  http("HTTP_VARY_ANY", { headers: { vary: "*" } }),
  http("HTTP_NO_CORS", { headers: { "access-control-allow-origin": "https://app.example.com" } }, "one origin"),
  http("HTTP_GZIP_UNASKED", { headers: { "content-encoding": "gzip", vary: "Accept-Encoding" } }),
  http("HTTP_RATE_LIMIT", { probes: { head: limited, gzip: limited, ipv4: limited } }),
  http("HTTP_ETAG_WEAK", { headers: { etag: 'W/"1"' } }),
  http("HTTP_ETAG_CHANGES", { probes: { again: response(body, { etag: '"2"' }) } }),
  http("HTTP_HEAD", { probes: { head: { ...goodSet, status: 405 } } }),
  http("HTTP_NO_304", { probes: { revalidate: goodSet } }),
  http("HTTP_304_HEADERS", { probes: { revalidate: unchanged([["etag", goodEtag()]]) } }, "missing headers"),
  http("HTTP_304_HEADERS", { probes: { revalidate: unchanged([["etag", '"2"'], lifetime]) } }, "a different ETag"),
  http("HTTP_304_FOREIGN", { probes: { foreign: { ...goodSet, status: 304 } } }),
  http("HTTP_CONDITIONAL_STATUS", { probes: { weak: { ...goodSet, status: 412 } } }),
  http("HTTP_SET_COOKIE", { headers: { "set-cookie": "session=1" } }),
  http("HTTP_CHUNKED", { headers: { "content-length": undefined, "transfer-encoding": "chunked" } }),
  http("HTTP_COMPRESSED_NO_VARY", { probes: { gzip: response(body, { "content-encoding": "gzip" }) } }),
  http("HTTP_ADDRESSES_DIFFER", { probes: { ipv6: response(others) } }, "other keys"),
  http("HTTP_ADDRESSES_DIFFER", { probes: { ipv6: response(others, {}, { status: 503 }) } }, "another status"),
  http("HTTP_PLAIN", {
    document: { issuer: "http://login.example.com", jwks_uri: "http://login.example.com/jwks" },
    discovery: { url: "http://login.example.com/.well-known/openid-configuration" },
    rest: { issuer: "http://login.example.com" },
  }),
  http("TLS_INVALID", failed("tls", "CERT_HAS_EXPIRED")),
  http("TLS_EXPIRES", { set: { tls: { notAfter: at + 13 * 24 * 3600 * 1000 } } }),
];

function goodEtag(): string {
  return goodSet.headers?.find(([name]) => name === "etag")?.[1] ?? "";
}

const discovery = (code: Code, metadata: NonNullable<Fixture["metadata"]>, about?: string): Fixture => ({
  ...http(code, { document: metadata(issuer, issuer.replace("https:", "http:")) }, about),
  metadata,
});
const told = (code: Code, says: (issuer: string) => string, about?: string): Fixture =>
  discovery(code, (issuer) => ({ issuer: says(issuer) }), about);

/** Returns a document as Microsoft serves it for several tenants. */
const entra = (asked: string, said: string, about: string): Fixture => ({
  ...http(
    "DISCOVERY_ISSUER_ENTRA",
    {
      document: { issuer: said, jwks_uri: `${new URL(asked).origin}/keys` },
      discovery: { url: `${asked}/.well-known/openid-configuration` },
      rest: { issuer: asked },
    },
    about,
  ),
  metadata: () => ({ issuer: said }),
  asked: () => asked,
});

/** Returns an issuer with a changed URL. */
function changed(issuer: string, change: (url: URL) => void): string {
  const url = new URL(issuer);
  change(url);
  return url.href.replace(/\/$/, "");
}

/** Required members of an OpenID provider. */
const login = (issuer: string) => ({
  authorization_endpoint: `${issuer}/authorize`,
  token_endpoint: `${issuer}/token`,
  response_types_supported: ["code"],
  subject_types_supported: ["public"],
});

const metadataUrl = `${issuer}/.well-known/oauth-authorization-server`;
const ofTenant = [
  response(bytes({ issuer }), {}, { url: `${metadataUrl}/tenant` }),
  response(bytes("<!doctype html>"), {}, { url: `${issuer}/.well-known/openid-configuration/tenant` }),
];
const microsoft = "https://login.microsoftonline.com";
const withQuery = `${issuer}?tenant=1`;

const documents: readonly Fixture[] = [
  http("DISCOVERY_STATUS", { discovery: { status: 404 } }),
  http("DISCOVERY_MEDIA_TYPE", { discovery: { headers: [["content-type", "text/html"]] } }),
  http("DISCOVERY_PATHS", { rest: { metadata: [{ url: metadataUrl, status: 404 }] } }, "missing"),
  http("DISCOVERY_PATHS", { rest: { metadata: ofTenant } }, "a web page"),
  http("DISCOVERY_NOT_JSON", { discovery: { body: bytes("<!doctype html>") } }),
  discovery("DISCOVERY_ISSUER_MISSING", () => ({ issuer: undefined })),
  told("DISCOVERY_ISSUER_SLASH", (issuer) => `${issuer}/`),
  told("DISCOVERY_ISSUER_CASE", (issuer) => issuer.replace("https://l", "https://L")),
  told("DISCOVERY_ISSUER_ORIGIN", (issuer) => changed(issuer, (url) => (url.port = "8443")), "port"),
  told("DISCOVERY_ISSUER_ORIGIN", (issuer) => issuer.replace("https:", "http:"), "scheme"),
  {
    ...http("DISCOVERY_ISSUER_QUERY", { document: { issuer: withQuery }, rest: { issuer: withQuery } }),
    metadata: (issuer) => ({ issuer: `${issuer}?tenant=1` }),
    asked: (issuer) => `${issuer}?tenant=1`,
  },
  entra(`${microsoft}/common/v2.0`, `${microsoft}/{tenantid}/v2.0`, "{tenantid}"),
  entra(`${microsoft}/consumers/v2.0`, `${microsoft}/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0`, "consumers"),
  entra(
    "https://contoso.b2clogin.com/contoso.onmicrosoft.com/b2c_1_signin/v2.0",
    "https://contoso.b2clogin.com/775527ff-9a37-4307-8b3d-cc311f58d925/v2.0/",
    "b2clogin.com",
  ),
  discovery("DISCOVERY_ALG_NONE", () => ({ id_token_signing_alg_values_supported: ["ES256", "none"] })),
  discovery("DISCOVERY_MEMBERS_MISSING", (issuer) => ({
    ...login(issuer),
    id_token_signing_alg_values_supported: undefined,
    subject_types_supported: undefined,
  })),
  told("DISCOVERY_ISSUER_OTHER", () => "https://other.example.com"),
  discovery("DISCOVERY_JWKS_URI_MISSING", () => ({ jwks_uri: undefined }), "missing"),
  discovery("DISCOVERY_JWKS_URI_MISSING", () => ({ jwks_uri: "/jwks" }), "a path"),
  http("DISCOVERY_JWKS_URI_NOT_FOUND", { set: { status: 404, body: bytes("<!doctype html>") } }),
  discovery("DISCOVERY_JWKS_URI_HTTP", (_, plain) => ({ jwks_uri: `${plain}/jwks` })),
  discovery("DISCOVERY_JWKS_URI_HTTP", () => ({ jwks_uri: "file:///etc/jwks.json" }), "file:"),
  discovery("DISCOVERY_JWKS_URI_PRIVATE", () => ({ jwks_uri: "https://10.0.0.1/jwks" }), "an address"),
  discovery("DISCOVERY_JWKS_URI_PRIVATE", () => ({ jwks_uri: "http://keycloak:8080/jwks" }), "a name of a container"),
  discovery("DISCOVERY_JWKS_URI_SITE", () => ({ jwks_uri: "https://keys.example.net/jwks" })),
  discovery("DISCOVERY_ALG_WITHOUT_KEY", () => ({ id_token_signing_alg_values_supported: ["ES256", "PS512"] })),
  discovery("DISCOVERY_KEY_WITHOUT_ALG", () => ({ id_token_signing_alg_values_supported: ["HS256"] })),
  discovery("DISCOVERY_RS256_MISSING", login),
];

const second = 1000;
const hour = 3600 * second;
const fetched = (offset: number, ...kids: readonly string[]): SetFetch => ({
  at: at + offset,
  set: response(bytes({ keys: kids.map((kid) => published(kid)) })),
});
const watched = (
  code: Code,
  laterFetches: readonly SetFetch[],
  rest: Partial<Observations> = {},
  about?: string,
): Fixture => {
  const { probes: _, ...once } = observed({ keys: [sound] });
  return { code, observations: { ...once, laterFetches, ...rest }, ...(about !== undefined && { about }) };
};

const seen = (set: HttpExchange): SetFetch => ({ at: at + 5 * second, set });
const tokenOfNext = (hours: number) => ({ at: at + (hours + 0.1) * hour, kid: "next", issuedAt: at + hours * hour });

const watches: readonly Fixture[] = [
  watched("WATCH_NODES_DISAGREE", [
    fetched(5 * second, "sound", "next"),
    fetched(10 * second, "sound"),
    fetched(15 * second, "sound", "next"),
  ]),
  watched("WATCH_KID_REUSED", [seen(response(bytes({ keys: [published("sound", ecKey("another"))] })))]),
  watched("WATCH_KEY_WITHDRAWN", [fetched(9 * hour, "sound", "next"), fetched(18 * hour, "next")], {
    tokens: [{ at: at + 17 * hour, kid: "sound", issuedAt: at + 17 * hour, expiresAt: at + 20 * hour }],
  }),
  watched("WATCH_SIGNS_UNANNOUNCED", [fetched(hour, "sound", "next")], { tokens: [tokenOfNext(1.4)] }, "too early"),
  watched("WATCH_SIGNS_UNANNOUNCED", [fetched(hour, "sound")], { tokens: [tokenOfNext(0.4)] }, "never published"),
  watched("WATCH_LIFETIME_TOO_LONG", [fetched(0.5 * hour, "sound", "next"), fetched(1.5 * hour, "next")]),
  watched("WATCH_ONLY_GROWS", [
    fetched(9 * hour, "sound", "b"),
    fetched(18 * hour, "sound", "b", "c"),
    fetched(27 * hour, "sound", "b", "c", "d"),
  ]),
  watched("WATCH_UNREACHABLE", [seen({ url: jwksUri, status: 502, headers: [] }), fetched(10 * second, "sound")]),
  watched("HTTP_ETAG_CHANGES", [seen(response(bytes({ keys: [sound] }), { etag: '"2"' }))], {}, "in time"),
  watched("JWKS_ONE_OLD_KEY", [fetched(366 * 24 * hour, "sound")], {}, "watched"),
];

export const fixtures: readonly Fixture[] = [...keys, ...sets, ...endpoint, ...documents, ...watches];
