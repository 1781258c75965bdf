import { createPublicKey } from "node:crypto";
import type { JWK } from "jose";
import type { PublicJwk } from "../../keys/jwk/public-members.ts";
import type { ActiveSigningKey } from "../../sign/token/token-signer.ts";
import type { KeysetSource } from "../managed-keys.ts";

/**
 * The part of a key manager that is needed to provide oidc-provider's keys. Removed and revoked keys have no public
 * key.
 */
export interface OidcKeys extends KeysetSource {
  readonly records: readonly {
    readonly kid: string;
    readonly use: "sig" | "enc";
    readonly alg?: string;
    readonly state: "announced" | "active" | "retiring" | "removed" | "revoked";
    readonly publicJwk?: PublicJwk;
  }[];
  /** Returns an encryption key's private key. */
  exportDecryptionKey(kid: string): Promise<JWK>;
}

/** oidc-provider's `ExternalSigningKey` class, which is loaded on first use. */
type KeyClass = new () => object;
type Sign = (data: Uint8Array) => Promise<Uint8Array>;

/** Returns a key that verifies and, if `sign` is given, signs. */
function keyOf(Key: KeyClass, kid: string, publicJwk: PublicJwk, sign?: Sign): object {
  const keyObject = () => createPublicKey({ key: { ...publicJwk }, format: "jwk" });
  return Object.assign(new Key(), { kid, alg: "ES256", keyObject, ...(sign !== undefined && { sign }) });
}

/**
 * Returns the signing keys for an oidc-provider instance, which signs with the first one.
 *
 * @param active the first key
 * @param renewed returns a current handle for that key; each handle works only for a limited time
 */
export function signingKeys(
  Key: KeyClass,
  keys: OidcKeys,
  active: ActiveSigningKey,
  renewed: () => Promise<ActiveSigningKey>,
): object[] {
  const others = keys.records.flatMap(({ kid, use, publicJwk }) =>
    use === "sig" && kid !== active.kid && publicJwk !== undefined ? [keyOf(Key, kid, publicJwk)] : [],
  );
  const sign = async (data: Uint8Array) =>
    (await renewed()).sign(data, { lifetimeSeconds: keys.maxTokenLifetimeSeconds });
  return [keyOf(Key, active.kid, active.publicJwk, sign), ...others];
}

/** Returns the private encryption keys, because oidc-provider decrypts request objects itself. */
export async function encryptionKeys(keys: OidcKeys): Promise<object[]> {
  const live = keys.records.filter(({ use, state }) => use === "enc" && state !== "removed" && state !== "revoked");
  return Promise.all(
    live.map(async ({ kid, alg }) => Object.assign(await keys.exportDecryptionKey(kid), { kid, alg, use: "enc" })),
  );
}
