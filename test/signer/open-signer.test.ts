import assert from "node:assert/strict";
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, verify, webcrypto } from "node:crypto";
import { readFile } from "node:fs/promises";
import { registerHooks } from "node:module";
import { describe, test } from "node:test";
import { type JwksdErrorCode, type KeyInput, localSigner } from "../../src/index.ts";
import { openSigner, signerBackend } from "../../src/keys/open-signer.ts";
import { signerTypes } from "../../src/keys/signer-backends.ts";
import { failing } from "../kms/failures.ts";
import { type EcPrivateJwk, ecKey, keyMaterial, rsaKey, spellingsOf, withoutPrivate } from "../support/keys.ts";
import { assertSilent, refusal } from "../support/refusal.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

// Packages that this process treats as not installed.
const absent = new Set<string>();
registerHooks({
  resolve(specifier, context, next) {
    if (!absent.has(specifier)) return next(specifier, context);
    const message = `Cannot find package '${specifier}' imported from ${context.parentURL}`;
    throw Object.assign(new Error(message), { code: "ERR_MODULE_NOT_FOUND" });
  },
});

const arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";

describe("the adapter for a key URI", () => {
  const unknown = ["", "login", "kms:login", "AWS-KMS:x", "toString:x", "constructor", "file:///key.pem"];
  for (const uri of [...unknown, undefined as unknown as string]) {
    test(`${JSON.stringify(uri)} has no known scheme`, async () => {
      const error = await failing(() => openSigner(uri), "ERR_SIGNER_URI");
      for (const type of signerTypes) assert.ok(error.message.includes(`${type}:`), error.message);
    });
  }

  test("every adapter loads but rejects a URI without a key version", async () => {
    for (const type of signerTypes) {
      const error = await failing(() => openSigner(`${type}:`), "ERR_SIGNER_URI");
      assert.doesNotMatch(error.message, /begins with one of/);
    }
  });

  test("receives the options and the signal", async (t) => {
    const stub = await vaultStub("a-token");
    t.after(() => stub.close());
    process.env["JWKSD_TEST_TOKEN"] = "a-token";
    const options = { vaultTransit: { tokenVariable: "JWKSD_TEST_TOKEN", mount: `${stub.url}/transit` } };
    const uri = stub.add("login");
    const signer = await openSigner(uri, options);
    assert.equal(signer.uri, uri);
    await failing(() => openSigner(uri, { ...options, signal: AbortSignal.abort() }), "ERR_SIGNER_ABORTED");

    const backend = await signerBackend("vault-transit", options);
    const made = await backend.create({ issuer: "https://login.example.com" });
    await (await signerBackend(made.uri, options)).destroy(made.uri);
    await failing(() => openSigner(made.uri, options), "ERR_SIGNER_KEY_STATE");
  });

  test("rejects invalid options before it opens a connection", async () => {
    const rows: [type: string, options: object, code: Parameters<typeof failing>[1]][] = [
      ["aws-kms", { awsKms: { endpoint: "vpce" } }, "ERR_OPTION_INVALID"],
      ["aws-kms", { awsKms: { timeoutMs: 2 ** 31 } }, "ERR_OPTION_INVALID"],
      ["azure-kv", { azureKeyVault: { keyType: "RSA" } }, "ERR_OPTION_INVALID"],
      ["gcp-kms", { googleKms: { protectionLevel: "hsm" } }, "ERR_OPTION_INVALID"],
      ["gcp-kms", { googleKms: { endpoint: "ftp://x" } }, "ERR_OPTION_INVALID"],
      ["vault-transit", { vaultTransit: { token: "hvs.secret" } }, "ERR_OPTION_UNKNOWN"],
      ["vault-transit", { vaultTransit: { tokenFile: "" } }, "ERR_OPTION_INVALID"],
    ];
    for (const [type, options, code] of rows) await failing(() => signerBackend(type, options), code, ["hvs.secret"]);
  });

  test("if an option that a new key needs is missing, the error shows what the option looks like in the signers file", async (t) => {
    const names = ["AWS_REGION", "AWS_CONFIG_FILE", "AWS_PROFILE"] as const;
    const before = names.map((name) => process.env[name]);
    t.after(() =>
      names.forEach((name, index) => {
        if (before[index] === undefined) Reflect.deleteProperty(process.env, name);
        else process.env[name] = before[index];
      }),
    );
    for (const name of names) Reflect.deleteProperty(process.env, name);
    process.env["AWS_CONFIG_FILE"] = "/dev/null";
    const needed = [
      "awsKms.region",
      "azureKeyVault.vault",
      "googleKms.cryptoKey",
      "pkcs11.token",
      "vaultTransit.mount",
    ];
    for (const [index, type] of signerTypes.entries()) {
      const backend = await signerBackend(type);
      const error = await failing(() => backend.create({ issuer: "https://login.example.com" }), "ERR_OPTION_INVALID");
      assert.ok(error.message.includes(`(${needed[index]} in the signers file), for example to `), error.message);
    }
  });

  test("the signers file in docs/signers.md is accepted, and its URIs use the schemes listed in the error message", async () => {
    const text = await readFile(new URL("../../docs/signers.md", import.meta.url), "utf8");
    const [options = {}] = Array.from(
      text.matchAll(/```json\n(.+?)```/gs),
      ([, json = ""]) => JSON.parse(json) as object,
    );
    assert.equal(Object.keys(options).length, signerTypes.length);
    for (const type of signerTypes) {
      await signerBackend(type, options);
      assert.ok(text.includes(`\n| [\`${type}:`), type);
    }
  });

  test("the error for a missing package shows how to install it", async (t) => {
    // Other tests in this process need them.
    t.after(() => absent.clear());
    const needed: [uri: string, packageName: string][] = [
      [`aws-kms:${arn}`, "@aws-sdk/client-kms"],
      [`azure-kv:https://login.vault.azure.net/keys/signing/${"0".repeat(32)}`, "@azure/identity"],
      [`azure-kv:https://login.vault.azure.net/keys/signing/${"0".repeat(32)}`, "@azure/keyvault-keys"],
      ["gcp-kms:projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1", "@google-cloud/kms"],
    ];
    for (const [uri, packageName] of needed) {
      absent.add(packageName);
      const error = await failing(() => openSigner(uri), "ERR_PACKAGE_MISSING");
      assert.match(error.message, new RegExp(`npm install ${packageName}$`));
    }
  });
});

const [a, b] = [ecKey("a"), ecKey("b")];
const leadingZeroY = ecKey("leading-zero-785");

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

// The output of `openssl ecparam -genkey`: the curve's name, then the key.
const ecParameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";

// The others are in test/contract/signer.local.test.ts.
const accepted: [name: string, key: EcPrivateJwk, input: unknown][] = [
  ["JWK with other members", a, { ...a, kid: "a", use: "sig", alg: "ES256", key_ops: ["sign"], x5t: "x" }],
  ["JWK text over many lines", a, `\n${JSON.stringify(a, null, 2)}\n`],
  ["JWK, leading zero in y", leadingZeroY, leadingZeroY],
  ["PKCS#8, leading zero in y", leadingZeroY, pem(leadingZeroY, "pkcs8")],
  ...(["pkcs8", "sec1"] as const).flatMap((type) =>
    spellingsOf(pem(a, type)).map(([how, text]): [string, EcPrivateJwk, string] => [`${type} ${how}`, a, text]),
  ),
  ["PKCS#8 after its public key", a, spki(a) + pem(a, "pkcs8")],
  ["SEC1 before its public key", a, pem(a, "sec1") + spki(a)],
  ["SEC1 after EC PARAMETERS", a, ecParameters + pem(a, "sec1")],
  ["a pair of KeyObjects", a, { privateKey: keyObject(a), publicKey: createPublicKey(keyObject(a)) }],
];

describe("creates a signer from any form of private key", () => {
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

test("a signer signs concurrently and leaves each message unchanged (endpoint specification, section 2, entry.Signer)", async () => {
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

const refused: [code: JwksdErrorCode, name: string, input: unknown, says?: RegExp][] = [
  ["ERR_KEY_FORMAT", "encrypted PKCS#8", encrypted("pkcs8"), /encrypted.*openssl pkcs8 -topk8 -nocrypt/s],
  ["ERR_KEY_FORMAT", "encrypted SEC1", encrypted("sec1"), /encrypted.*openssl pkcs8 -topk8 -nocrypt/s],
  ["ERR_KEY_FORMAT", "a certificate", certificate, /certificate.*openssl x509 -pubkey -noout/s],
  [
    "ERR_KEY_FORMAT",
    "PEM without a key",
    "-----BEGIN X509 CRL-----\n-----END X509 CRL-----\n",
    /no private or public key/,
  ],
  ["ERR_KEY_FORMAT", "PEM with two keys", pem(a, "pkcs8") + pem(b, "sec1"), /several private keys/],
  ["ERR_KEY_FORMAT", "PEM with two public keys", spki(a) + spki(b), /several public keys/],
  ["ERR_KEY_MISMATCH", "PEM with a private key and another key's public key", pem(a, "pkcs8") + spki(b)],
  ["ERR_KEY_FORMAT", "incomplete PEM", pem(a, "pkcs8").slice(0, 120), /this PEM is incomplete/],
  [
    "ERR_KEY_FORMAT",
    "PEM with another label in its END line",
    pem(a, "pkcs8").replace("END PRIVATE", "END PUBLIC"),
    /this PEM is incomplete/,
  ],
  [
    "ERR_KEY_FORMAT",
    "PEM with \\n as two characters",
    pem(a, "pkcs8").replaceAll("\n", "\\n"),
    /the two characters \\ and n .*text\.replaceAll\("\\\\n", "\\n"\)/,
  ],
  ["ERR_KEY_FORMAT", "PEM as a JSON string", JSON.stringify(pem(a, "sec1")), /the two characters \\ and n/],
  ["ERR_KEY_FORMAT", "PEM with other content", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"],
  ["ERR_KEY_FORMAT", "SEC1 with other content", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"],
  ["ERR_KEY_FORMAT", "text that is neither PEM nor JSON", `{"kty":"EC","d":"${a.d}"`, /neither PEM nor JSON/],
  ["ERR_KEY_FORMAT", "null", null],
  ["ERR_KEY_UNSUPPORTED", "an Ed25519 PEM", ed25519.privateKey.export({ type: "pkcs8", format: "pem" })],
  ["ERR_KEY_FORMAT", "d that is not base64url", { ...a, d: `${a.d.slice(0, -1)}!` }],
  ["ERR_KEY_FORMAT", "a point that is not on the curve", { ...a, y: b.y }],
  ["ERR_KEY_UNSUPPORTED", "an Ed25519 KeyObject", ed25519.privateKey],
  ["ERR_KEY_UNSUPPORTED", "an X25519 JWK", secret.export({ format: "jwk" })],
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
  ["ERR_KEY_PURPOSE", "key_ops for verification only", { ...a, key_ops: ["verify"] }, /"key_ops"/],
  ["ERR_KEY_PURPOSE", "empty key_ops", { ...a, key_ops: [] }, /"key_ops"/],
  ["ERR_KEY_MISMATCH", "a JWK with parts of two keys", { ...a, d: b.d }],
  ["ERR_KEY_MISMATCH", "JWK text with parts of two keys", JSON.stringify({ ...b, d: a.d })],
  [
    "ERR_KEY_FORMAT",
    "a pair without a private key",
    { publicKey: createPublicKey(keyObject(a)), privateKey: undefined },
  ],
  [
    "ERR_KEY_MISMATCH",
    "a pair of KeyObjects of two keys",
    { privateKey: keyObject(a), publicKey: createPublicKey(keyObject(b)) },
  ],
  ["ERR_KEY_PURPOSE", "a CryptoKey for key agreement", await ecdhCryptoKey()],
  ["ERR_KEY_MISMATCH", "a CryptoKeyPair of two keys", await cryptoKeyPair(a, true, b)],
  ["ERR_KEY_MISMATCH", "a CryptoKeyPair of two keys, not extractable", await cryptoKeyPair(a, false, b)],
];

async function ecdhCryptoKey(): Promise<KeyInput> {
  const pair = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, true, ["deriveBits"]);
  return pair.privateKey;
}

describe("rejects a key that is not a private P-256 key", () => {
  for (const [code, name, input, says = /^the signing key/] of refused) {
    test(`${code}: ${name}`, async () => {
      const error = await refusal(() => localSigner(input as KeyInput), code);
      assert.equal(error.name, "KeyMaterialError");
      assert.match(error.message, says);
      assertSilent(error, [input, a, b, rsaKey()]);
    });
  }
});

test("the list of strings that errors must not contain includes the key material", () => {
  assert.deepEqual(keyMaterial(a), [a.x, a.y, a.d]);
  assert.deepEqual(
    keyMaterial(pem(a, "pkcs8")),
    pem(a, "pkcs8")
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("-----")),
  );
});
