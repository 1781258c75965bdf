import assert from "node:assert/strict";
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, verify, webcrypto } from "node:crypto";
import { describe, test } from "node:test";
import { type ErrorCode, type KeyInput, localSigner } from "../../src/index.ts";
import { type EcPrivateJwk, ecKey, keyMaterial, rsaKey, spellingsOf, withoutPrivate } from "../support/keys.ts";
import { assertSilent, refusal } from "../support/refusal.ts";

const [a, b] = [ecKey("a"), ecKey("b")];
const [leadingZeroX, leadingZeroY] = [ecKey("leading-zero-50"), ecKey("leading-zero-785")];

const keyObject = (jwk: object) => createPrivateKey({ key: { ...jwk }, format: "jwk" });
const pem = (jwk: object, type: "pkcs8" | "sec1" | "pkcs1"): string =>
  keyObject(jwk).export({ type, format: "pem" }).toString();
const spki = (jwk: object): string =>
  createPublicKey(keyObject(jwk)).export({ type: "spki", format: "pem" }).toString();
const encrypted = (type: "pkcs8" | "sec1"): string =>
  keyObject(a).export({ type, format: "pem", cipher: "aes-256-cbc", passphrase: "secret" }).toString();

const p256 = { name: "ECDSA", namedCurve: "P-256" };
const cryptoKey = (jwk: object, extractable: boolean, usage: "sign" | "verify") =>
  webcrypto.subtle.importKey("jwk", { ...jwk }, p256, extractable, [usage]);
const cryptoKeyPair = async (jwk: object, extractable: boolean, publicJwk: object = jwk) => ({
  privateKey: await cryptoKey(jwk, extractable, "sign"),
  publicKey: await cryptoKey(withoutPrivate(publicJwk), true, "verify"),
});

// As `openssl ecparam -genkey` writes it: the name of the curve, then the key.
const ecParameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";

const accepted: [name: string, key: EcPrivateJwk, input: unknown][] = [
  ["JWK", a, a],
  ["JWK with what it says about itself", a, { ...a, kid: "a", use: "sig", alg: "ES256", key_ops: ["sign"], x5t: "x" }],
  ["JWK text", a, JSON.stringify(a)],
  ["JWK text over many lines", a, `\n${JSON.stringify(a, null, 2)}\n`],
  ["JWK, leading zero in x", leadingZeroX, leadingZeroX],
  ["JWK, leading zero in y", leadingZeroY, leadingZeroY],
  ["PKCS#8", a, pem(a, "pkcs8")],
  ["PKCS#8, leading zero in x", leadingZeroX, pem(leadingZeroX, "pkcs8")],
  ["PKCS#8, leading zero in y", leadingZeroY, pem(leadingZeroY, "pkcs8")],
  ...(["pkcs8", "sec1"] as const).flatMap((type) =>
    spellingsOf(pem(a, type)).map(([how, text]): [string, EcPrivateJwk, string] => [`${type} ${how}`, a, text]),
  ),
  ["PKCS#8 after its public key", a, spki(a) + pem(a, "pkcs8")],
  ["SEC1 before its public key", a, pem(a, "sec1") + spki(a)],
  ["SEC1", a, pem(a, "sec1")],
  ["SEC1 after EC PARAMETERS", a, ecParameters + pem(a, "sec1")],
  ["KeyObject", a, keyObject(a)],
  ["CryptoKey", a, await cryptoKey(a, true, "sign")],
  ["CryptoKeyPair", a, await cryptoKeyPair(a, true)],
  ["a pair of KeyObjects", a, { privateKey: keyObject(a), publicKey: createPublicKey(keyObject(a)) }],
  ["CryptoKeyPair that is not extractable", a, await cryptoKeyPair(a, false)],
];

describe("a signer is made of any form of private key", () => {
  const message = new TextEncoder().encode("header.claims");
  const digest = createHash("sha256").update(message).digest();
  for (const [name, key, input] of accepted) {
    test(name, async () => {
      const signer = await localSigner(input as KeyInput);
      const { kty, crv, x, y } = key;
      assert.deepEqual(signer.publicKey, { kty, crv, x, y });
      const signature = await signer.sign({ digest, message });
      assert.equal(signature.length, 64);
      const publicKey = createPublicKey({ key: { kty, crv, x, y }, format: "jwk" });
      assert.ok(verify("sha256", message, { key: publicKey, dsaEncoding: "ieee-p1363" }, signature));
    });
  }
});

test("a signer signs concurrently, each message as it is (contract, section 2, entry.Signer)", async () => {
  const signer = await localSigner(a);
  const publicKey = createPublicKey({ key: withoutPrivate(a), format: "jwk" });
  const messages = Array.from({ length: 50 }, (_, index) => new TextEncoder().encode(`message ${index}`));
  const verified = await Promise.all(
    messages.map(async (message) => {
      const digest = createHash("sha256").update(message).digest();
      const signature = await signer.sign({ digest, message });
      return verify("sha256", message, { key: publicKey, dsaEncoding: "ieee-p1363" }, signature);
    }),
  );
  assert.deepEqual(new Set(verified), new Set([true]));
});

const certificate = `-----BEGIN CERTIFICATE-----
MIIBgjCCASegAwIBAgIUD0zBvvD90nDCbNCZRTHE7+a+SgMwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKb3AuZXhhbXBsZTAgFw0yNjExMjAxOTEwNDdaGA8yMTI2MTAy
NzE5MTA0N1owFTETMBEGA1UEAwwKb3AuZXhhbXBsZTBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABAEAoRl/xfOYimFwhX3rpxWyUEiaS8bk1PUgvpkFhn1arvygDmGK
zYdzhytgL2GTlkfEUW1/SyyPJeD/zLmSToejUzBRMB0GA1UdDgQWBBSL0CnBYG6N
4MkOyQh3+am4oobd3TAfBgNVHSMEGDAWgBSL0CnBYG6N4MkOyQh3+am4oobd3TAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQDmtVGU3IarnBRa/VQ1
WOWu/aBwY+8igGEBReoxqzjqbgIhAO1u4zDNX7KZsQlQe52albcxBWgDb9Hxy6ko
P1COypAr
-----END CERTIFICATE-----
`;
const ed25519 = generateKeyPairSync("ed25519");
const secret = generateKeyPairSync("x25519").privateKey;

const refused: [code: ErrorCode, name: string, input: unknown, says?: RegExp][] = [
  ["ERR_KEY_FORMAT", "encrypted PKCS#8", encrypted("pkcs8"), /encrypted.*openssl pkcs8 -topk8 -nocrypt/s],
  ["ERR_KEY_FORMAT", "encrypted SEC1", encrypted("sec1"), /encrypted.*openssl pkcs8 -topk8 -nocrypt/s],
  ["ERR_KEY_FORMAT", "a certificate", certificate, /certificate.*openssl x509 -pubkey -noout/s],
  [
    "ERR_KEY_FORMAT",
    "PEM without a key",
    "-----BEGIN X509 CRL-----\n-----END X509 CRL-----\n",
    /no private or public key/,
  ],
  ["ERR_KEY_FORMAT", "PEM of two keys", pem(a, "pkcs8") + pem(b, "sec1"), /several private keys/],
  ["ERR_KEY_FORMAT", "PEM of two public keys", spki(a) + spki(b), /several public keys/],
  ["ERR_KEY_MISMATCH", "PEM of a private key and another public one", pem(a, "pkcs8") + spki(b)],
  ["ERR_KEY_FORMAT", "PEM that is cut off", pem(a, "pkcs8").slice(0, 120), /cut off/],
  [
    "ERR_KEY_FORMAT",
    "PEM that ends as something else",
    pem(a, "pkcs8").replace("END PRIVATE", "END PUBLIC"),
    /cut off/,
  ],
  [
    "ERR_KEY_FORMAT",
    "PEM with \\n as two characters",
    pem(a, "pkcs8").replaceAll("\n", "\\n"),
    /the two characters \\ and n .*text\.replaceAll\("\\\\n", "\\n"\)/,
  ],
  ["ERR_KEY_FORMAT", "PEM as a string of JSON", JSON.stringify(pem(a, "sec1")), /the two characters \\ and n/],
  ["ERR_KEY_FORMAT", "PEM of something else", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"],
  ["ERR_KEY_FORMAT", "SEC1 of something else", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"],
  ["ERR_KEY_FORMAT", "text that is neither PEM nor JSON", `{"kty":"EC","d":"${a.d}"`, /neither PEM nor JSON/],
  ["ERR_KEY_FORMAT", "a JWK Set", JSON.stringify({ keys: [a] }), /JWK Set where one key is expected/],
  ["ERR_KEY_FORMAT", "JSON that is no object", "7"],
  ["ERR_KEY_FORMAT", "null", null],
  ["ERR_KEY_FORMAT", "nothing", undefined],
  ["ERR_KEY_UNSUPPORTED", "an Ed25519 PEM", ed25519.privateKey.export({ type: "pkcs8", format: "pem" })],
  ["ERR_KEY_FORMAT", "a kid that is no string", { ...a, kid: 7 }],
  ["ERR_KEY_FORMAT", "key_ops that is no array", { ...a, key_ops: "sign" }],
  ["ERR_KEY_FORMAT", "d that is no string", { ...a, d: 7 }],
  ["ERR_KEY_FORMAT", "d that is not base64url", { ...a, d: `${a.d.slice(0, -1)}!` }],
  ["ERR_KEY_FORMAT", "d that is too short", { ...a, d: a.d.slice(0, 20) }],
  ["ERR_KEY_FORMAT", "a point that is not on the curve", { ...a, y: b.y }],
  [
    "ERR_KEY_FORMAT",
    "a CryptoKey that is not extractable",
    await cryptoKey(a, false, "sign"),
    /pass the CryptoKeyPair/,
  ],
  ["ERR_KEY_UNSUPPORTED", "an Ed25519 KeyObject", ed25519.privateKey],
  ["ERR_KEY_UNSUPPORTED", "an X25519 JWK", secret.export({ format: "jwk" })],
  ["ERR_KEY_UNSUPPORTED", "a symmetric JWK", { kty: "oct", k: a.d }],
  ["ERR_KEY_UNSUPPORTED", "a JWK without kty", { ...a, kty: undefined }],
  ["ERR_KEY_NOT_P256", "P-384", ecKey("p384", "P-384"), /P-384/],
  ["ERR_KEY_NOT_P256", "P-521 in PKCS#8", pem(ecKey("p521", "P-521"), "pkcs8"), /P-521/],
  ["ERR_KEY_NOT_P256", "RSA", rsaKey(), /RSA/],
  ["ERR_KEY_NOT_P256", "RSA in PKCS#8", pem(rsaKey(), "pkcs8"), /RSA/],
  ["ERR_KEY_NOT_P256", "RSA in PKCS#1", pem(rsaKey(), "pkcs1"), /RSA/],
  ["ERR_PRIVATE_KEY_MISSING", "a public JWK", withoutPrivate(a)],
  ["ERR_PRIVATE_KEY_MISSING", "SPKI", spki(a)],
  ["ERR_PRIVATE_KEY_MISSING", "a public KeyObject", createPublicKey(keyObject(a))],
  ["ERR_PRIVATE_KEY_MISSING", "a public CryptoKey", await cryptoKey(withoutPrivate(a), true, "verify")],
  ["ERR_KEY_PURPOSE", "use enc", { ...a, use: "enc" }, /"use" is "enc"/],
  ["ERR_KEY_PURPOSE", "another alg", { ...a, alg: "ECDH-ES" }, /"alg" is "ECDH-ES"/],
  ["ERR_KEY_PURPOSE", "key_ops to verify only", { ...a, key_ops: ["verify"] }, /"key_ops"/],
  ["ERR_KEY_PURPOSE", "key_ops to do nothing", { ...a, key_ops: [] }, /"key_ops"/],
  ["ERR_KEY_MISMATCH", "a JWK of two halves", { ...a, d: b.d }],
  ["ERR_KEY_MISMATCH", "JWK text of two halves", JSON.stringify({ ...b, d: a.d })],
  [
    "ERR_KEY_FORMAT",
    "a pair without a private key",
    { publicKey: createPublicKey(keyObject(a)), privateKey: undefined },
  ],
  [
    "ERR_KEY_MISMATCH",
    "a pair of KeyObjects of two halves",
    { privateKey: keyObject(a), publicKey: createPublicKey(keyObject(b)) },
  ],
  ["ERR_KEY_PURPOSE", "a CryptoKey for key agreement", await ecdhCryptoKey()],
  ["ERR_KEY_MISMATCH", "a CryptoKeyPair of two halves", await cryptoKeyPair(a, true, b)],
  ["ERR_KEY_MISMATCH", "a CryptoKeyPair of two halves, not extractable", await cryptoKeyPair(a, false, b)],
];

async function ecdhCryptoKey(): Promise<KeyInput> {
  const pair = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, true, ["deriveBits"]);
  return pair.privateKey;
}

describe("what is no private P-256 key is refused", () => {
  for (const [code, name, input, says = /^the signing key/] of refused) {
    test(`${code}: ${name}`, async () => {
      const error = await refusal(() => localSigner(input as KeyInput), code);
      assert.equal(error.name, "KeyMaterialError");
      assert.match(error.message, says);
      assertSilent(error, [input, a, b, rsaKey()]);
    });
  }
});

test("what is looked for in errors is really the key material", () => {
  assert.deepEqual(keyMaterial(a), [a.x, a.y, a.d]);
  assert.deepEqual(
    keyMaterial(pem(a, "pkcs8")),
    pem(a, "pkcs8")
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("-----")),
  );
});
