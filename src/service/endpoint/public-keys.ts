import { KeyMaterialError } from "../../base/errors.ts";
import type { PublicJwk } from "../../keys/jwk/public.ts";
import { type EncryptionEntry, checkEncryption, checkKeyset } from "../../keys/keyset/keyset.ts";
import type { ManagedKeysets } from "../../rotation/manager/types.ts";
import { readEncryptionKeyset, readKeyset } from "../../library/node/key-files.ts";
import { publishOnlySigner } from "../../keys/signer/local.ts";
import type { PublishedKey } from "../admin/known.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";

/** Both keysets without private parts, for a process that only publishes, such as a worker. */
export interface PublicKeys {
  readonly signing: readonly { readonly keyId: string; readonly publicKey: PublicJwk }[];
  readonly encryption: readonly EncryptionEntry[];
  /** Whether the rotation mode is on. */
  readonly isRotating: boolean;
}

type KeyPaths = Pick<Settings, "keys" | "encryptionKeys">;

/** The files and folders of keys. */
export function keyPathsOf({ keys, encryptionKeys }: KeyPaths): string[] {
  return [keys, encryptionKeys].filter((path) => path !== undefined);
}

/** Reads and checks keysets. Private parts are checked too, and not kept. */
export async function loadPublicKeys(paths: KeyPaths, log: Pick<Logger, "warn">): Promise<PublicKeys> {
  const { keys, encryptionKeys } = paths;
  const none = { entries: [], warnings: [] };
  const signing = keys === undefined ? none : await readKeyset(keys);
  const encryption = encryptionKeys === undefined ? none : await readEncryptionKeyset(encryptionKeys);
  const [keyset, encryptionKeyset] = [signing.entries, encryption.entries];
  const checked = keys === undefined ? checkEncryption(encryptionKeyset) : checkKeyset(keyset, encryptionKeyset);
  await checked.catch((error: KeyMaterialError) => {
    throw new KeyMaterialError(error.code, `${keyPathsOf(paths).join(" and ")}: ${error.message}`);
  });
  for (const warning of [...signing.warnings, ...encryption.warnings]) log.warn(warning);
  return publicHalves({ keyset, encryptionKeyset }, false);
}

/** The keysets for a provider that only publishes. */
export function toKeysets({ signing, encryption }: PublicKeys): ManagedKeysets {
  return {
    keyset: signing.map(({ keyId, publicKey }) => ({ keyId, signer: publishOnlySigner(publicKey) })),
    encryptionKeyset: encryption,
  };
}

export function publicHalves({ keyset, encryptionKeyset }: ManagedKeysets, isRotating: boolean): PublicKeys {
  const signing = keyset.map(({ keyId, signer }) => ({ keyId, publicKey: signer.publicKey as PublicJwk }));
  return { signing, encryption: encryptionKeyset, isRotating };
}

/** Signing keys are either managed or in files. Encryption keys may be both. */
export function together(managed: PublicKeys | undefined, files: PublicKeys): PublicKeys {
  if (managed === undefined) return files;
  return { ...managed, encryption: [...managed.encryption, ...files.encryption] };
}

/** What people are told of the keys, in the order of the JWK Set. */
export function listedKeys({ signing, encryption }: PublicKeys): PublishedKey[] {
  return [
    ...signing.map(({ keyId }) => ({ kid: keyId, use: "sig" as const, alg: "ES256" })),
    ...encryption.map(({ keyId, publicKey, alg, notAfter }) => {
      const jwk = publicKey as { readonly alg?: unknown; readonly kty?: unknown };
      const byType = jwk.kty === "EC" ? "ECDH-ES" : "RSA-OAEP-256";
      const named = alg ?? (typeof jwk.alg === "string" ? jwk.alg : byType);
      return { kid: keyId, use: "enc" as const, alg: named, notAfter: notAfter?.getTime() };
    }),
  ];
}
