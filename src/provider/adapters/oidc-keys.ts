import { createPublicKey } from "node:crypto";
import type { JWK } from "jose";
import type { PublicJwk } from "../../keys/jwk/public.ts";
import type { SigningKey } from "../../sign/token/token-signer.ts";
import type { ManagedKeys } from "../managed-keys.ts";

/** Managed keys; a key manager has them. Those that have ended have no public half. */
export interface OidcKeys extends ManagedKeys {
  readonly records: readonly {
    readonly kid: string;
    readonly use: "sig" | "enc";
    readonly alg?: string;
    readonly state: "announced" | "active" | "retiring" | "removed" | "revoked";
    readonly publicJwk?: PublicJwk;
  }[];
  /** The private half of an encryption key. */
  exportDecryptionKey(kid: string): Promise<JWK>;
}

/** `ExternalSigningKey` of oidc-provider, which is loaded when it is needed. */
type KeyClass = new () => object;
type Sign = (data: Uint8Array) => Promise<Uint8Array>;

/** A key that verifies, and signs if it is given how. */
function keyOf(Key: KeyClass, kid: string, publicJwk: PublicJwk, sign?: Sign): object {
  const keyObject = () => createPublicKey({ key: { ...publicJwk }, format: "jwk" });
  return Object.assign(new Key(), { kid, alg: "ES256", keyObject, ...(sign !== undefined && { sign }) });
}

/**
 * The signing keys of an instance of oidc-provider, which signs with the first one.
 *
 * @param active that key
 * @param renewed takes it anew, because a handle may be used for a while only
 */
export function signingKeys(
  Key: KeyClass,
  keys: OidcKeys,
  active: SigningKey,
  renewed: () => Promise<SigningKey>,
): object[] {
  const others = keys.records.flatMap(({ kid, use, publicJwk }) =>
    use === "sig" && kid !== active.kid && publicJwk !== undefined ? [keyOf(Key, kid, publicJwk)] : [],
  );
  const sign = async (data: Uint8Array) =>
    (await renewed()).sign(data, { lifetimeSeconds: keys.maxTokenLifetimeSeconds });
  return [keyOf(Key, active.kid, active.publicJwk, sign), ...others];
}

/** The encryption keys, private, because oidc-provider decrypts request objects itself. */
export async function encryptionKeys(keys: OidcKeys): Promise<object[]> {
  const live = keys.records.filter(({ use, state }) => use === "enc" && state !== "removed" && state !== "revoked");
  return Promise.all(
    live.map(async ({ kid, alg }) => Object.assign(await keys.exportDecryptionKey(kid), { kid, alg, use: "enc" })),
  );
}
