import { KeyMaterialError } from "../../base/errors.ts";
import type { PublicJwk } from "../../keys/jwk/public.ts";
import { type EncryptionEntry, checkEncryption, checkKeyset } from "../../keys/keyset/keyset.ts";
import type { Keysets } from "../../library/provider/managed-keys.ts";
import { readEncryptionKeyset, readKeyset } from "../../library/node/key-files.ts";
import type { PublishedKey } from "../admin/known.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";

/** Both keysets without private parts, as they are published. */
export interface PublicKeys {
  readonly keyset: readonly { readonly kid: string; readonly publicKey: PublicJwk }[];
  readonly encryptionKeyset: readonly EncryptionEntry[];
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

export function publicHalves({ keyset, encryptionKeyset }: Keysets, isRotating: boolean): PublicKeys {
  return {
    keyset: keyset.map(({ kid, signer, publicKey }) => ({
      kid,
      publicKey: (signer?.publicKey ?? publicKey) as PublicJwk,
    })),
    encryptionKeyset,
    isRotating,
  };
}

/** Signing keys are either managed or in files. Encryption keys may be both. */
export function together(managed: PublicKeys | undefined, files: PublicKeys): PublicKeys {
  if (managed === undefined) return files;
  return { ...managed, encryptionKeyset: [...managed.encryptionKeyset, ...files.encryptionKeyset] };
}

/** What people are told of the keys, in the order of the JWK Set. */
export function listedKeys({ keyset, encryptionKeyset }: PublicKeys): PublishedKey[] {
  return [
    ...keyset.map(({ kid }) => ({ kid, use: "sig" as const, alg: "ES256" })),
    ...encryptionKeyset.map(({ kid, publicKey, alg, notAfter }) => {
      const jwk = publicKey as { readonly alg?: unknown; readonly kty?: unknown };
      const byType = jwk.kty === "EC" ? "ECDH-ES" : "RSA-OAEP-256";
      const named = alg ?? (typeof jwk.alg === "string" ? jwk.alg : byType);
      return { kid, use: "enc" as const, alg: named, notAfter: notAfter?.getTime() };
    }),
  ];
}
