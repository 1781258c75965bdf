// Runs with node:test in Node, Bun and Deno.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import type { Bytes } from "../../src/base/bytes.ts";
import * as node from "../../src/keys/crypto/node.ts";
import type { Primitives } from "../../src/keys/crypto/primitives.ts";
import * as web from "../../src/keys/crypto/web.ts";
import { ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";

// Deno uses Web Crypto; its node:crypto has other names for hashes.
const isDeno = "Deno" in globalThis;
const implementations: Readonly<Record<string, Primitives>> = {
  ...(!isDeno && { "node:crypto": node }),
  "Web Crypto": web,
};
const message = new TextEncoder().encode("header.claims");
const p256 = { name: "ECDSA", namedCurve: "P-256" };
const byEcdsa = { name: "ECDSA", hash: "SHA-256" };

const publicKey = (jwk: object, alg: string): Promise<jose.CryptoKey> =>
  jose.importJWK(withoutPrivate(jwk), alg) as Promise<jose.CryptoKey>;
const privateKey = (jwk: object, alg: string, extractable = true): Promise<jose.CryptoKey> =>
  jose.importJWK({ ...jwk }, alg, { extractable }) as Promise<jose.CryptoKey>;
const fromHex = (hex: string): Bytes => Uint8Array.from(hex.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
const half = (value: bigint): string => value.toString(16).padStart(64, "0");

const a = ecKey("a");
const key = await publicKey(a, "ES256");
const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

const generated = async (alg: string): Promise<jose.JWK> =>
  jose.exportJWK((await jose.generateKeyPair(alg, { extractable: true })).privateKey);
const rsa = rsaKey();
const p384 = await generated("ES384");
const ed25519 = await generated("EdDSA");
const keys: Readonly<Record<string, jose.JWK>> = {
  ES256: await generated("ES256"),
  ES384: p384,
  ES512: await generated("ES512"),
  ...Object.fromEntries(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map((alg) => [alg, rsa])),
  EdDSA: ed25519,
  Ed25519: ed25519,
};

/** Signatures of the message by the key "a". Their r and s have every length and every top bit that matters in DER. */
const good: readonly (readonly [name: string, hex: string])[] = [
  [
    "top bits set",
    "f75962df17ad4793f582f82ae495b3dd7f5a18bcb64b5e582b45c37e35a20b64959e87ab515c5f59ff5c8181c5cbe67ff42d6578001a115a2c445f117cad190c",
  ],
  [
    "only the top bits of their first bytes set",
    "8089976ecfc7e88d6e86de0c1724e132d97ad5b78222905b90f578ea03e5b0e280e1aa63ba256d09bd609185c3ac01e76513ee7f6106efdba23f17b3ddf5d9eb",
  ],
  [
    "top bits not set",
    "5b903a9608a9ef33ebe4e8fa4280abdb39303d0f6cdad8d091591b32723dcbfa07da0d9a95b99d1359babeb294e2417bd83f56e07b90db617d8e2e3fcbaa70e3",
  ],
  [
    "r short, then its top bit set",
    "00bc66bd127c9f2ffee233b8c2ecb097b9bf5dee980793d1e2ff89902c256e4fefd504333f4d6b1d39422fc94ef32bf8f60f50f50a2ecf10f802c1a89eb16682",
  ],
  [
    "s short, then its top bit set",
    "0b90fe302d27c72e5c736bdc3fe669d002c9d98bdeffd9ca3f603ebac825c64a00ce3779eb3fb4f368149cc1994501986ae22307c82e3b424fe4f16d673048c5",
  ],
  [
    "r two bytes short",
    "0000699cdb8adcb5e0f9c9310563cc7ff5c54624f97fd1c3ef67ed681b8abd6b572a925951d4c793a6fb7727d43722f51b67a49558790a322083f268e8009440",
  ],
  [
    "s two bytes short",
    "d66609b8b0d4042d32b8237510febc47edd9f594bd21a0af887052a91671cb4e0000a4575df82aed5bfac5b1edbee0c5e3363417b2ced2c3daed8ba1a2e24a39",
  ],
  [
    "r and s short",
    "003120fea2755008dcf54ad67d734d1ee8b415a11c8e0860bd295c3a8f64a17f006d4432070232a665570ec78c6220063fa6c78d55eeb208004845f9c3d885cb",
  ],
];

/** Values around every limit of r and s. */
const scalars: Readonly<Record<string, bigint>> = {
  "0": 0n,
  "1": 1n,
  "31 bytes": 2n ** 248n - 1n,
  "31 bytes, top bit not set": 2n ** 247n - 1n,
  "32 bytes, top bit not set": 2n ** 255n - 1n,
  "32 bytes, top bit set": 2n ** 255n,
  "n - 1": order - 1n,
  n: order,
  "n + 1": order + 1n,
  "32 bytes of ones": 2n ** 256n - 1n,
};

/** Verifies a signature and compares the result with Web Crypto itself. */
async function judge(verify: Primitives["verify"], signature: Bytes, what: string): Promise<boolean> {
  const expected = await crypto.subtle.verify(byEcdsa, key, signature, message).catch(() => false);
  assert.equal(await verify(key, "ES256", message, signature), expected, what);
  return expected;
}

/** Returns a signing input and its signature by jose. */
async function signedByJose(
  alg: string,
  payload: Bytes,
): Promise<{ readonly input: Bytes; readonly signature: Bytes }> {
  const signer = new jose.CompactSign(payload).setProtectedHeader({ alg });
  const [head, body, tail = ""] = (await signer.sign(await privateKey(keys[alg] ?? {}, alg))).split(".");
  return { input: new TextEncoder().encode(`${head}.${body}`), signature: jose.base64url.decode(tail) as Bytes };
}

// One suite, because Deno runs only a file's first one.
describe("the primitives", () => {
  for (const [name, { sha256, sign, verify, verifyLater, toBase64url }] of Object.entries(implementations)) {
    describe(`${name}: verification of ES256 signatures (r followed by s, RFC 7518 section 3.4) agrees with Web Crypto`, () => {
      for (const [what, hex] of good) {
        test(`accepts a signature: ${what}`, async () => {
          const signature = fromHex(hex);
          assert.ok(await judge(verify, signature, what));
          // The other valid signature with this r.
          const mirrored = fromHex(hex.slice(0, 64) + half(order - BigInt(`0x${hex.slice(64)}`)));
          assert.ok(await judge(verify, mirrored, "n - s"));
          // The signature as a part of a larger buffer.
          assert.ok(await judge(verify, Uint8Array.from([7, ...signature, 7]).subarray(1, 65), "a part of a buffer"));
        });

        test(`rejects a changed signature: ${what}`, async () => {
          const signature = fromHex(hex);
          for (const at of [0, 1, 2, 31, 32, 33, 34, 63]) {
            const changed = Uint8Array.from(signature, (byte, index) => (index === at ? byte ^ 1 : byte));
            assert.equal(await judge(verify, changed, `byte ${at}`), false);
          }
          for (const length of [0, 1, 2, 32, 62, 63])
            assert.equal(await judge(verify, signature.slice(0, length), `${length} bytes`), false);
          for (const more of [1, 2, 8, 32, 64])
            assert.equal(
              await judge(verify, Uint8Array.from([...signature, ...new Uint8Array(more)]), `${more} bytes more`),
              false,
            );
          assert.equal(await judge(verify, Uint8Array.from([0, ...signature]), "a leading zero"), false);
          assert.equal(await verify(key, "ES256", message.subarray(1), signature), false);
        });
      }

      test("rejects valid r and s if their size does not match the curve", async () => {
        for (const [what, hex] of good) {
          const [r, s] = [hex.slice(0, 64), hex.slice(64)];
          for (const [size, resized] of [
            ["33 bytes", `00${r}00${s}`],
            ["31 bytes", r.slice(2) + s.slice(2)],
          ] as const)
            assert.equal(await judge(verify, fromHex(resized), `${what}, ${size}`), false);
        }
      });

      test("rejects r and s at and around each of their limits", async () => {
        for (const [r, rValue] of Object.entries(scalars))
          for (const [s, sValue] of Object.entries(scalars))
            assert.equal(await judge(verify, fromHex(half(rValue) + half(sValue)), `r ${r}, s ${s}`), false);
      });

      test("rejects a valid signature once r or s is replaced with a boundary value", async () => {
        for (const [what, hex] of good)
          for (const [limit, value] of Object.entries(scalars)) {
            assert.equal(await judge(verify, fromHex(half(value) + hex.slice(64)), `${what}, r ${limit}`), false);
            assert.equal(await judge(verify, fromHex(hex.slice(0, 64) + half(value)), `${what}, s ${limit}`), false);
          }
      });
    });

    describe(`${name}: every algorithm verifies jose's signatures and nothing else`, () => {
      for (const [alg, jwk] of Object.entries(keys)) {
        test(alg, async () => {
          const key = await publicKey(jwk, alg);
          for (let count = 0; count < 8; count += 1) {
            const { input, signature } = await signedByJose(alg, new TextEncoder().encode(`claims ${count}`));
            assert.equal(await verify(key, alg, input, signature), true);
            assert.equal(await verify(key, alg, message, signature), false);
            for (const changed of [
              Uint8Array.from(signature, (byte, at) => (at === count ? byte ^ 0x80 : byte)),
              // Not the first byte: if it is 0, OpenSSL accepts an RSA signature without it.
              signature.slice(0, -1),
              Uint8Array.from([...signature, 0]),
              new Uint8Array(signature.length),
              new Uint8Array(),
            ])
              assert.equal(await verify(key, alg, input, changed), false);
          }
        });

        test(`${alg}: a key for another algorithm causes a TypeError, whatever the signature`, async () => {
          for (const [other, otherJwk] of Object.entries(keys)) {
            if (other === alg || (other.startsWith("Ed") && alg.startsWith("Ed"))) continue;
            const key = await publicKey(otherJwk, other);
            await assert.rejects(async () => verify(key, alg, message, new Uint8Array(64)), TypeError, other);
          }
        });
      }

      test("an unknown algorithm or a key that cannot verify causes a TypeError", async () => {
        const signature = new Uint8Array(64);
        const secret = await privateKey(a, "ES256");
        await assert.rejects(async () => verify(secret, "ES256", message, signature), TypeError);
        const exchange = { ...p256, name: "ECDH" };
        const idle = await crypto.subtle.importKey("jwk", withoutPrivate(a), exchange, true, []);
        await assert.rejects(async () => verify(idle, "ES256", message, signature), TypeError);
        for (const alg of ["none", "HS256", "es256", "", "__proto__", "constructor"])
          await assert.rejects(async () => verify(key, alg, message, signature), TypeError);
      });

      test("verifyLater returns the same results", async () => {
        for (const [alg, jwk] of Object.entries(keys)) {
          const { input, signature } = await signedByJose(alg, message);
          const key = await publicKey(jwk, alg);
          const verdicts = [input, message].map(async (bytes) => verifyLater(key, alg, bytes, signature));
          assert.deepEqual(await Promise.all(verdicts), [true, false]);
        }
      });

      test("a 1024-bit RSA key causes a TypeError (RFC 7518 section 3.3)", async () => {
        const weak = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
        const jwk = { kty: "RSA", e: "AQAB", n: jose.base64url.encode(new Uint8Array(128).fill(0xab)) };
        const key = await crypto.subtle.importKey("jwk", jwk, weak, true, ["verify"]);
        await assert.rejects(async () => verify(key, "RS256", message, new Uint8Array(128)), TypeError);
      });
    });

    describe(`${name}: signing`, () => {
      for (const extractable of [true, false]) {
        test(`a key that is ${extractable ? "" : "not "}extractable creates a 64-byte signature that Web Crypto verifies`, async () => {
          const secret = await privateKey(a, "ES256", extractable);
          for (let count = 0; count < 50; count += 1) {
            const signature = await sign(secret, message);
            assert.equal(signature.length, 64);
            assert.ok(await crypto.subtle.verify(byEcdsa, key, signature, message));
          }
        });
      }

      test("a key that cannot sign with ES256 causes a TypeError", async () => {
        const others = [
          await publicKey(a, "ES256"),
          await privateKey(p384, "ES384"),
          await privateKey(rsa, "RS256"),
          await crypto.subtle.importKey("jwk", { ...a }, { ...p256, name: "ECDH" }, true, ["deriveBits"]),
        ];
        for (const key of others) await assert.rejects(async () => sign(key, message), TypeError);
      });
    });

    test(`${name}: encodes bytes and text (as UTF-8) in base64url without padding (RFC 7515 appendix C)`, () => {
      const bytes = Uint8Array.of(9, 3, 236, 255, 224, 193, 9);
      assert.equal(toBase64url(bytes.subarray(1, -1)), "A-z_4ME");
      assert.equal(toBase64url("ÿ€😀"), "w7_igqzwn5iA");
      assert.equal(toBase64url(""), "");
    });

    test(`${name}: computes SHA-256 (FIPS 180-4)`, async () => {
      const rows = [
        ["", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
        ["abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"],
      ] as const;
      for (const [text, hex] of rows) {
        const digest = await sha256(new TextEncoder().encode(text));
        assert.equal(digest.constructor, Uint8Array);
        assert.deepEqual(digest, fromHex(hex));
      }
    });
  }
});
