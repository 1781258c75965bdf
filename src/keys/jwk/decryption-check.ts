import type { JWK } from "jose";
import { compactDecrypt } from "jose/jwe/compact/decrypt";
import { CompactEncrypt } from "jose/jwe/compact/encrypt";
import { importJWK } from "jose/key/import";
import { keyError } from "../../base/errors.ts";
import type { PublicJwk } from "./public-members.ts";

/**
 * Checks that the private key matches the public key. Called before the key is recorded permanently.
 *
 * @throws KeyMaterialError `ERR_KEY_MISMATCH`
 */
export async function checkDecrypts(publicJwk: PublicJwk, privateJwk: JWK, alg: string, name: string): Promise<void> {
  try {
    const probe = new CompactEncrypt(new Uint8Array(1)).setProtectedHeader({ alg, enc: "A128GCM" });
    const jwe = await probe.encrypt(await importJWK({ ...publicJwk }, alg));
    await compactDecrypt(jwe, await importJWK(privateJwk, alg));
  } catch {
    throw keyError("ERR_KEY_MISMATCH", name, "its private key cannot decrypt what its public key encrypts");
  }
}
