import * as jose from "jose";
import { publicMembers } from "../jwk/public.ts";
import type { ExternalSigner } from "../signer/signer.ts";
import type { KeyUse } from "../store/store.ts";
import type { NewKey } from "./commands.ts";
import type { Wrapping } from "./wrapping.ts";

/** The alg of new keys, where there is no key before them. RSA is what most relying parties can encrypt to. */
export const defaultAlg: Readonly<Record<KeyUse, string>> = { sig: "ES256", enc: "RSA-OAEP-256" };

/** Makes a key in the memory of this process, and wraps its private half; its kid is its RFC 7638 thumbprint. */
export async function makeLocalKey(use: KeyUse, alg: string, wrapping: Wrapping): Promise<NewKey> {
  const { privateKey } = await jose.generateKeyPair(alg, { extractable: true, modulusLength: 2048 });
  return wrapKey(use, alg, await jose.exportJWK(privateKey), wrapping);
}

/** A record for a private JWK that exists. `kid` defaults to its RFC 7638 thumbprint. */
export async function wrapKey(
  use: KeyUse,
  alg: string,
  privateJwk: jose.JWK,
  wrapping: Wrapping,
  kid?: string,
): Promise<NewKey> {
  const publicJwk = publicMembers(privateJwk, "the new key");
  const keyId = kid ?? (await jose.calculateJwkThumbprint({ ...publicJwk }));
  return { kid: keyId, use, alg, publicJwk, privateHalf: { jwe: await wrapping.wrap(keyId, privateJwk) } };
}

/** A record for a key in an HSM or key service. */
export async function externalKey({ publicKey, uri }: ExternalSigner, kid?: string): Promise<NewKey> {
  const publicJwk = publicMembers(publicKey as Readonly<Record<string, unknown>>, uri);
  const keyId = kid ?? (await jose.calculateJwkThumbprint({ ...publicJwk }));
  return { kid: keyId, use: "sig", alg: "ES256", publicJwk, privateHalf: { uri } };
}
