import type { JWK } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { exportJWK } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";
import { KeyMaterialError } from "../../base/errors.ts";
import { checkDecrypts } from "../../keys/jwk/decrypts.ts";
import { publicMembers } from "../../keys/jwk/public.ts";
import { readKey } from "../../keys/jwk/read.ts";
import { type EncryptionEntry, checkEncryption, checkSigning, encryptionAlgs } from "../../publish/keyset.ts";
import { signerFrom } from "../../keys/signer/local.ts";
import type { ExternalSigner } from "../../keys/signer/signer.ts";
import type { KeyUse } from "../rules/records.ts";
import type { NewKey } from "../rules/commands.ts";
import type { Wrapping } from "../custody/wrapping.ts";

/** Of the keys that are made here. */
export const keyAlgs: readonly string[] = ["ES256", ...encryptionAlgs];

/** Makes a key in the memory of this process, and wraps its private half; its kid is its RFC 7638 thumbprint. */
export async function makeLocalKey(use: KeyUse, alg: string, wrapping: Wrapping): Promise<NewKey> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true, modulusLength: 2048 });
  const key = await wrapKey(use, alg, await exportJWK(privateKey), wrapping);
  // A command line would take a kid with a leading dash for an option.
  return key.kid.startsWith("-") ? makeLocalKey(use, alg, wrapping) : key;
}

/**
 * A record for a private JWK that exists. The default of its kid is its RFC 7638 thumbprint.
 *
 * @throws KeyMaterialError for every key that a provider would refuse, because a kid that was recorded is never free again
 */
export async function wrapKey(
  use: KeyUse,
  alg: string,
  privateJwk: JWK,
  wrapping: Wrapping,
  givenKid?: string,
): Promise<NewKey> {
  const publicJwk = publicMembers(privateJwk, "the new key");
  const thumbprint = await calculateJwkThumbprint({ ...publicJwk });
  const kid = givenKid ?? thumbprint;
  await (use === "sig" ? checkSigningKey(kid, privateJwk) : checkEncryptionKey(kid, alg, privateJwk));
  return { kid, use, alg, thumbprint, publicJwk, privateHalf: { jwe: await wrapping.wrap(kid, privateJwk) } };
}

/** A record for a key in an HSM or key service. Its default kid is its RFC 7638 thumbprint. */
export async function externalKey(signer: ExternalSigner, givenKid?: string): Promise<NewKey> {
  const { publicKey, uri } = signer;
  const publicJwk = publicMembers(publicKey as Readonly<Record<string, unknown>>, uri);
  const thumbprint = await calculateJwkThumbprint({ ...publicJwk });
  return { kid: givenKid ?? thumbprint, use: "sig", alg: "ES256", thumbprint, publicJwk, privateHalf: { uri } };
}

async function checkSigningKey(kid: string, privateJwk: JWK): Promise<void> {
  const name = `kid ${JSON.stringify(kid)}`;
  await checkSigning([{ kid, signer: await signerFrom(await readKey({ ...privateJwk }, name), name) }]);
}

async function checkEncryptionKey(kid: string, alg: string, privateJwk: JWK): Promise<void> {
  await checkEncryption([{ kid, publicKey: { ...privateJwk }, alg: alg as EncryptionEntry["alg"] }]);
  const name = `kid ${JSON.stringify(kid)}`;
  const { publicJwk, privateKey } = await readKey({ ...privateJwk }, name);
  if (privateKey === undefined) {
    throw new KeyMaterialError("ERR_PRIVATE_KEY_MISSING", `${name}: this is a public key; its private part is needed`);
  }
  await checkDecrypts(publicJwk, privateJwk, alg, name);
}
