import type { JWK } from "jose";
import { type KeyMaterialError, keyError } from "../../base/errors.ts";
import { keyIdentity, publicMembers } from "../../keys/jwk/public-members.ts";
import { type LiveRecord, jweOf } from "../rules/key-records.ts";
import type { Wrapping } from "./key-wrapping.ts";

/**
 * Returns the private key of a live record, checked against its public key.
 *
 * @throws StoreError `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
 * @throws KeyMaterialError `ERR_KEY_MISMATCH`
 */
export async function privateJwkOf(record: LiveRecord, wrapping: Pick<Wrapping, "unwrap">): Promise<JWK> {
  const { kid, publicJwk } = record;
  const privateJwk = await wrapping.unwrap(kid, jweOf(record) ?? "");
  // The private members were checked against their own public members before wrapping.
  const name = `kid ${JSON.stringify(kid)}`;
  if (keyIdentity(publicMembers({ ...privateJwk }, name)) !== keyIdentity(publicJwk)) throw mismatch(name);
  return privateJwk;
}

export const mismatch = (name: string): KeyMaterialError =>
  keyError("ERR_KEY_MISMATCH", name, "its private key belongs to a different public key");
