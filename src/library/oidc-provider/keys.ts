import { createPublicKey } from "node:crypto";
import type { JWK } from "jose";
import { ExternalSigningKey } from "oidc-provider";
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

/** A key that verifies, and signs if it is given how. */
class Key extends ExternalSigningKey {
  readonly #publicJwk: PublicJwk;

  constructor(kid: string, publicJwk: PublicJwk, sign?: ExternalSigningKey["sign"]) {
    super();
    this.kid = kid;
    this.alg = "ES256";
    this.#publicJwk = publicJwk;
    if (sign !== undefined) this.sign = sign;
  }

  override keyObject = () => createPublicKey({ key: { ...this.#publicJwk }, format: "jwk" });
}

/**
 * The signing keys of an instance of oidc-provider, which signs with the first one. Those that were removed are among them: their ID tokens may
 * still be an `id_token_hint`.
 */
export function signingKeys({ records, maxTokenLifetimeSeconds }: OidcKeys, active: SigningKey): object[] {
  const others = records.filter(({ kid, use, state }) => use === "sig" && kid !== active.kid && state !== "revoked");
  const sign = (data: Uint8Array) => active.sign(data, { lifetimeSeconds: maxTokenLifetimeSeconds });
  return [new Key(active.kid, active.publicJwk, sign), ...others.map(({ kid, publicJwk }) => new Key(kid, publicJwk))];
}

/** The encryption keys, private, because oidc-provider decrypts request objects itself. */
export async function encryptionKeys(keys: OidcKeys): Promise<object[]> {
  const live = keys.records.filter(({ use, state }) => use === "enc" && state !== "removed" && state !== "revoked");
  return Promise.all(
    live.map(async ({ kid, alg }) => Object.assign(await keys.exportDecryptionKey(kid), { kid, alg, use: "enc" })),
  );
}
