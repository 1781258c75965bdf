import { createPublicKey } from "node:crypto";
import type { JWK } from "jose";
import type { PublicJwk } from "../../keys/jwk/public.ts";
import type { ManagedKeys } from "../provider/managed-keys.ts";
import type { SigningKey } from "../provider/signing-key.ts";

/** Managed keys, with those that have ended; a key manager has them. */
export interface OidcKeys extends ManagedKeys {
  readonly records: readonly {
    readonly kid: string;
    readonly use: "sig" | "enc";
    readonly alg: string;
    readonly state: "announced" | "active" | "retiring" | "removed" | "revoked";
    readonly publicJwk: PublicJwk;
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
 * The signing keys of an instance of oidc-provider, which signs with the first one. Those that were removed are among them: their ID tokens may
 * still be an `id_token_hint`.
 */
export function signingKeys(
  Key: KeyClass,
  { records, maxTokenLifetimeSeconds }: OidcKeys,
  active: SigningKey,
): object[] {
  const others = records.filter(({ kid, use, state }) => use === "sig" && kid !== active.kid && state !== "revoked");
  const sign = (data: Uint8Array) => active.sign(data, { lifetimeSeconds: maxTokenLifetimeSeconds });
  return [
    keyOf(Key, active.kid, active.publicJwk, sign),
    ...others.map(({ kid, publicJwk }) => keyOf(Key, kid, publicJwk)),
  ];
}

/** The encryption keys, private, because oidc-provider decrypts request objects itself. */
export async function encryptionKeys(keys: OidcKeys): Promise<object[]> {
  const live = keys.records.filter(({ use, state }) => use === "enc" && state !== "removed" && state !== "revoked");
  return Promise.all(
    live.map(async ({ kid, alg }) => Object.assign(await keys.exportDecryptionKey(kid), { kid, alg, use: "enc" })),
  );
}
