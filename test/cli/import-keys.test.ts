import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey, generateKeyPairSync } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import * as jose from "jose";
import type { JwksdErrorCode } from "../../src/base/errors.ts";
import { type ImportOptions, readImport } from "../../src/cli/files/read-import.ts";
import { ecKey, named, rsaKey, spellingsOf } from "../support/keys.ts";
import { assertSilent, refusal } from "../support/refusal.ts";
import { temporaryFolder } from "../support/service.ts";

const ec = ecKey("a");
const p384 = ecKey("a", "P-384");
const rsa = rsaKey();
const pem = (key: object, type: "pkcs8" | "sec1" | "pkcs1"): string =>
  createPrivateKey({ key: key as jose.JWK, format: "jwk" })
    .export({ format: "pem", type })
    .toString();

/** Creates a file with this content. */
async function fileOf(t: TestContext, text: string): Promise<string> {
  const file = join(await temporaryFolder(t), "key");
  await writeFile(file, text);
  return file;
}

const publicPem = (key: object): string =>
  createPublicKey({ key: key as jose.JWK, format: "jwk" })
    .export({ format: "pem", type: "spki" })
    .toString();

describe("reads private keys in every format, with their use and alg", () => {
  type Row = readonly [name: string, text: string, options: ImportOptions, key: object, use: string, alg: string];
  const wrap = "ECDH-ES+A256KW";
  const rows: readonly Row[] = [
    ["EC, PKCS#8", pem(ec, "pkcs8"), {}, ec, "sig", "ES256"],
    ["EC, SEC1", pem(ec, "sec1"), {}, ec, "sig", "ES256"],
    ...spellingsOf(pem(ec, "pkcs8")).map(([how, text]) => [`EC, PKCS#8 ${how}`, text, {}, ec, "sig", "ES256"] as const),
    ...spellingsOf(pem(rsa, "pkcs8")).map(
      ([how, text]) => [`RSA, PKCS#8 ${how}`, text, { use: "enc" }, rsa, "enc", "RSA-OAEP-256"] as const,
    ),
    ["EC after its public key", publicPem(ec) + pem(ec, "pkcs8"), {}, ec, "sig", "ES256"],
    ["EC on P-256, for encryption", pem(ec, "pkcs8"), { use: "enc" }, ec, "enc", "ECDH-ES"],
    ["EC on P-384", pem(p384, "pkcs8"), { use: "enc" }, p384, "enc", "ECDH-ES"],
    ["RSA, PKCS#8", pem(rsa, "pkcs8"), { use: "enc" }, rsa, "enc", "RSA-OAEP-256"],
    ["RSA, PKCS#1", pem(rsa, "pkcs1"), { use: "enc" }, rsa, "enc", "RSA-OAEP-256"],
    ["a JWK", JSON.stringify({ ...ec, ext: true, secret: "x" }), {}, ec, "sig", "ES256"],
    ["a JWK with use and alg", JSON.stringify({ ...ec, use: "enc", alg: wrap }), {}, ec, "enc", wrap],
    ["an RSA JWK", JSON.stringify({ ...rsa, alg: "RSA-OAEP" }), {}, rsa, "enc", "RSA-OAEP"],
  ];
  for (const [name, text, options, key, use, alg] of rows) {
    test(name, async (t) => {
      const file = await fileOf(t, text);
      const kid = await jose.calculateJwkThumbprint(key);
      assert.deepEqual(await readImport(file, options), { isSet: false, keys: [{ kid, use, alg, privateJwk: key }] });
      const [named] = (await readImport(file, { ...options, kid: "2026-11" })).keys;
      assert.equal(named?.kid, "2026-11");
    });
  }
});

test("keeps a JWK's kid and rejects a different kid", async (t) => {
  const file = await fileOf(t, JSON.stringify(named("own")));
  assert.equal((await readImport(file)).keys[0]?.kid, "own");
  const error = await refusal(() => readImport(file, { kid: "other" }), "ERR_OPTION_INVALID");
  assert.match(error.message, /"own".*"other"/);
});

describe("rejects a key that cannot be imported, without quoting it", () => {
  const rows: readonly [name: string, text: string, options: ImportOptions, code: JwksdErrorCode][] = [
    ["a public key", publicPem(ec), {}, "ERR_PRIVATE_KEY_MISSING"],
    ["a set without keys", '{"keys":{}}', {}, "ERR_KEY_FORMAT"],
    ["a set that holds null", '{"keys":[null]}', {}, "ERR_KEY_FORMAT"],
    ["an empty set", '{"keys":[]}', {}, "ERR_KEY_FORMAT"],
    ["a use that contradicts the JWK's", JSON.stringify({ ...ec, use: "sig" }), { use: "enc" }, "ERR_KEY_PURPOSE"],
    ["an unknown use", JSON.stringify({ ...ec, use: "tls" }), {}, "ERR_KEY_PURPOSE"],
    [
      "an alg that does not match the key",
      JSON.stringify({ ...rsa, use: "enc", alg: "RS256" }),
      {},
      "ERR_KEY_UNSUPPORTED",
    ],
    ["halves of two RSA keys", JSON.stringify({ ...rsa, n: rsaKey(3072)["n"] }), { use: "enc" }, "ERR_KEY_MISMATCH"],
    ["halves of two EC keys", JSON.stringify({ ...ec, d: ecKey("b").d }), {}, "ERR_KEY_MISMATCH"],
    ["an RSA key without its primes", JSON.stringify({ ...rsa, p: undefined }), { use: "enc" }, "ERR_KEY_MISMATCH"],
    ["no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", {}, "ERR_KEY_FORMAT"],
  ];
  for (const [name, text, options, code] of rows) {
    test(name, async (t) => {
      const file = await fileOf(t, text);
      const error = await refusal(() => readImport(file, options), code);
      assertSilent(error, [text, ec, rsa, p384]);
    });
  }
});

describe("rejects signing keys for other algorithms, gives migration advice, and never suggests importing them as encryption keys", () => {
  const edwards = generateKeyPairSync("ed25519").privateKey;
  const koblitz = generateKeyPairSync("ec", { namedCurve: "secp256k1" }).privateKey;
  const ed25519 = edwards.export({ format: "jwk" });
  const rows: readonly [name: string, text: string, options: ImportOptions, type: string][] = [
    ["RSA, PKCS#8, without a use", pem(rsa, "pkcs8"), {}, "RSA"],
    ["RSA, PKCS#1", pem(rsa, "pkcs1"), {}, "RSA"],
    ["RSA, as a signing key", pem(rsa, "pkcs8"), { use: "sig" }, "RSA"],
    ["an RSA JWK with use", JSON.stringify({ ...rsa, use: "sig" }), {}, "RSA"],
    ["an RSA JWK with alg", JSON.stringify({ ...rsa, alg: "RS256" }), {}, "RSA"],
    ["P-384", JSON.stringify({ ...p384, alg: "ES384" }), {}, "P-384"],
    ["secp256k1, PKCS#8", koblitz.export({ format: "pem", type: "pkcs8" }).toString(), {}, "secp256k1"],
    ["Ed25519, PKCS#8", edwards.export({ format: "pem", type: "pkcs8" }).toString(), {}, "Ed25519"],
    ["an Ed25519 JWK", JSON.stringify({ ...ed25519, alg: "EdDSA" }), {}, "Ed25519"],
    ["an Ed25519 JWK with any --use", JSON.stringify(ed25519), { use: "enc" }, "Ed25519"],
    ["in a set", JSON.stringify({ keys: [named("a"), { ...ed25519, kid: "b" }] }), {}, "Ed25519"],
  ];
  for (const [name, text, options, type] of rows) {
    test(name, async (t) => {
      const file = await fileOf(t, text);
      const error = await refusal(() => readImport(file, options), "ERR_KEY_NOT_P256");
      assertSilent(error, [text, rsa, p384, ed25519]);
      assert.ok(error.message.includes(`jwksd cannot sign with this ${type} key, because it signs only with ES256`));
      assert.match(error.message, /see "From RS256 or EdDSA" in docs\/migrate\.md$/);
      assert.ok(!error.message.includes("enc"), error.message);
      assert.equal(error.message.includes('kid "b"'), name === "in a set");
    });
  }

  test("links to a section that exists", async () => {
    const page = await readFile(new URL("../../docs/migrate.md", import.meta.url), "utf8");
    assert.match(page, /^## From RS256 or EdDSA$/m);
  });

  test("imports a single key from a set, whatever other keys the set contains", async (t) => {
    const file = await fileOf(t, JSON.stringify({ keys: [{ ...ed25519, kid: "b" }, null, named("a")] }));
    const { keys } = await readImport(file, { kid: "a" });
    assert.deepEqual(
      keys.map(({ kid }) => kid),
      ["a"],
    );
    await refusal(() => readImport(file), "ERR_KEY_NOT_P256");
  });
});
