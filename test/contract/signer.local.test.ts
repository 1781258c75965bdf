import assert from "node:assert/strict";
import { createPrivateKey, webcrypto } from "node:crypto";
import { test } from "node:test";
import { type KeyInput, type Signer, localSigner } from "../../src/index.ts";
import { defineSignerTests } from "../../src/testing/signer-tests.ts";
import { type EcPrivateJwk, ecKey, keyMaterial, withoutPrivate } from "../support/keys.ts";
import { soak } from "../support/soak.ts";

const p256 = { name: "ECDSA", namedCurve: "P-256" };
const keyObject = (jwk: object) => createPrivateKey({ key: { ...jwk }, format: "jwk" });
const pem = (jwk: object, type: "pkcs8" | "sec1"): string => keyObject(jwk).export({ type, format: "pem" }).toString();
const cryptoKey = (jwk: object, extractable: boolean, usage: "sign" | "verify") =>
  webcrypto.subtle.importKey("jwk", { ...jwk }, p256, extractable, [usage]);
const cryptoKeyPair = async (jwk: object, extractable: boolean) => ({
  privateKey: await cryptoKey(jwk, extractable, "sign"),
  publicKey: await cryptoKey(withoutPrivate(jwk), true, "verify"),
});

const forms: Record<string, (jwk: EcPrivateJwk) => unknown> = {
  JWK: (jwk) => jwk,
  "JWK text": (jwk) => JSON.stringify(jwk),
  "PKCS#8": (jwk) => pem(jwk, "pkcs8"),
  SEC1: (jwk) => pem(jwk, "sec1"),
  KeyObject: keyObject,
  CryptoKey: (jwk) => cryptoKey(jwk, true, "sign"),
  CryptoKeyPair: (jwk) => cryptoKeyPair(jwk, true),
  "CryptoKeyPair that is not extractable": (jwk) => cryptoKeyPair(jwk, false),
};

for (const [form, make] of Object.entries(forms)) {
  // The public half has a leading zero.
  const jwk = ecKey("leading-zero-50");
  defineSignerTests(
    `localSigner from ${form}`,
    async () => {
      const input = await make(jwk);
      const pemLines = keyMaterial([pem(jwk, "pkcs8"), pem(jwk, "sec1")]);
      return { signer: await localSigner(input as KeyInput), secrets: [jwk.d, ...pemLines], hold: () => () => {} };
    },
    { signatures: soak(1_000) },
  );
}

test("every form of a private key produces a signer with the same public key", async () => {
  const signers = await Promise.all(
    Object.values(forms).map(async (make): Promise<Signer> => localSigner((await make(ecKey("a"))) as KeyInput)),
  );
  const publicKeys = new Set(signers.map(({ publicKey }) => JSON.stringify(publicKey)));
  assert.equal(publicKeys.size, 1);
});
