import type { CryptoKey, JWK } from "jose";
import { importJWK } from "jose/key/import";
import { sign, verify } from "#crypto";
import type { Bytes } from "../../base/bytes.ts";
import { KeyMaterialError, keyError } from "../../base/errors.ts";
import type { PublicJwk } from "../jwk/public-members.ts";
import { type CryptoKeyPair, type KeyInput, type KeyMaterial, isCryptoKey, readKey } from "../jwk/read-key.ts";
import { notP256 } from "./external-signer.ts";
import type { SignInput, Signer } from "./signer.ts";

type LocalSign = (message: Bytes) => Bytes | Promise<Bytes>;

const localKeys = new WeakMap<Signer, CryptoKeyPair>();

/**
 * Returns the function that signs with a local signer's key, or `undefined` for any other signer. The key was checked
 * when it was loaded. Local signers are recognized by object identity, so no other signer can pass for one.
 */
export function localSign(signer: Signer): LocalSign | undefined {
  const keys = localKeys.get(signer);
  return keys && ((message) => sign(keys.privateKey, message));
}

/** Returns the imported public key of a local signer; `undefined` for any other signer. */
export const localPublicKey = (signer: Signer): CryptoKey | undefined => localKeys.get(signer)?.publicKey;

/**
 * Creates a signer for a private key in this process's memory, after checking with a test signature that the private
 * key matches the public key.
 *
 * @example
 * ```ts
 * const signer = await localSigner(await readFile("signing.pem", "utf8"));
 * const provider = await createProvider({ issuer, keyset: [{ kid: "2026-11", signer }] });
 * ```
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_NOT_P256`, `ERR_KEY_PURPOSE`,
 * `ERR_PRIVATE_KEY_MISSING`, `ERR_KEY_MISMATCH`
 */
export async function localSigner(key: KeyInput): Promise<Signer> {
  return signerFrom(await readKey(key, "the signing key"), "the signing key");
}

/** Like {@link localSigner}, except that the key has already been read. @param name the key's name in messages */
export async function signerFrom(material: KeyMaterial, name: string): Promise<Signer> {
  const { publicJwk, privateKey } = material;
  if (publicJwk.kty !== "EC" || publicJwk.crv !== "P-256") {
    throw notP256(name, publicJwk.kty === "EC" ? publicJwk.crv : publicJwk.kty);
  }
  checkPurpose(material, name);
  if (privateKey === undefined) {
    throw keyError("ERR_PRIVATE_KEY_MISSING", name, "this is a public key; pass the private key");
  }
  const keys = await importPair(publicJwk, privateKey, name);
  const signer: Signer = Object.freeze({
    publicKey: Object.freeze(publicJwk),
    sign: async ({ message }: SignInput) => sign(keys.privateKey, message),
  });
  localKeys.set(signer, keys);
  return signer;
}

function checkPurpose({ use, alg, keyOps }: KeyMaterial, name: string): void {
  const wrong =
    use !== undefined && use !== "sig"
      ? `"use" is ${JSON.stringify(use)}, not "sig"`
      : alg !== undefined && alg !== "ES256"
        ? `"alg" is ${JSON.stringify(alg)}, not "ES256"`
        : keyOps !== undefined && !keyOps.includes("sign")
          ? '"key_ops" does not include "sign"'
          : undefined;
  if (wrong !== undefined) {
    throw keyError("ERR_KEY_PURPOSE", name, `${wrong}, so it cannot sign for the provider`);
  }
}

/** Imports both keys and then checks with a test signature that they match. */
async function importPair(publicJwk: PublicJwk, privateKey: JWK | CryptoKey, name: string): Promise<CryptoKeyPair> {
  try {
    const publicKey = await importEs256(publicJwk);
    // The public key is known to be valid at this point, so a private JWK that cannot be imported does not belong to
    // it.
    const secret = isCryptoKey(privateKey) ? privateKey : await importEs256(privateKey).catch(() => undefined);
    if (secret === undefined) throw mismatch(name);
    const probe = new TextEncoder().encode("jwksd probe");
    if (!(await verify(publicKey, "ES256", probe, await sign(secret, probe)))) throw mismatch(name);
    return { privateKey: secret, publicKey };
  } catch (error) {
    if (error instanceof KeyMaterialError) throw error;
    throw keyError("ERR_KEY_FORMAT", name, "this is not a valid P-256 signing key");
  }
}

/** Imports a JWK. An asymmetric JWK always becomes a `CryptoKey`. */
async function importEs256(jwk: JWK | PublicJwk): Promise<CryptoKey> {
  const key = await importJWK({ ...jwk }, "ES256", { extractable: true });
  return key as CryptoKey;
}

function mismatch(name: string): KeyMaterialError {
  return keyError("ERR_KEY_MISMATCH", name, "its private and public keys do not match");
}
