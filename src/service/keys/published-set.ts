import { KeyMaterialError } from "../../base/errors.ts";
import { type JwkSet, jwkSetOf } from "../../publish/jwk-set.ts";
import { checkEncryption, checkSigning } from "../../publish/keyset.ts";
import { readEncryptionKeyset, readKeyset } from "../../node/key-files.ts";
import type { Logger } from "../config/log.ts";
import type { Settings } from "../config/setting-definitions.ts";

/** What a service publishes. */
export interface PublishedSet {
  readonly set: JwkSet;
  /** Whether the rotation mode is on. */
  readonly isRotating: boolean;
}

type KeyPaths = Pick<Settings, "keys" | "encryptionKeys">;

/** The files and folders of keys. */
export function keyPathsOf({ keys, encryptionKeys }: KeyPaths): string[] {
  return [keys, encryptionKeys].filter((path) => path !== undefined);
}

/** Reads and checks the keys of files. Private parts are checked too, and not kept. */
export async function loadKeyFiles(paths: KeyPaths, log: Pick<Logger, "warn">): Promise<JwkSet> {
  const { keys, encryptionKeys } = paths;
  const signing = keys === undefined ? undefined : await readKeyset(keys);
  const encryption = encryptionKeys === undefined ? undefined : await readEncryptionKeyset(encryptionKeys);
  try {
    const { entries } = signing === undefined ? { entries: [] } : await checkSigning(signing.entries);
    const set = await jwkSetOf([...entries, ...(await checkEncryption(encryption?.entries ?? []))]);
    for (const warning of [...(signing?.warnings ?? []), ...(encryption?.warnings ?? [])]) log.warn(warning);
    return set;
  } catch (error) {
    if (!(error instanceof KeyMaterialError)) throw error;
    throw new KeyMaterialError(error.code, `${keyPathsOf(paths).join(" and ")}: ${error.message}`);
  }
}

/** Signing keys are either managed or in files. Encryption keys may be both. @throws see `jwkSetOf` */
export async function together(managed: PublishedSet | undefined, files: JwkSet): Promise<PublishedSet> {
  if (managed === undefined) return { set: files, isRotating: false };
  if (files.entries.length === 0) return managed;
  return { ...managed, set: await jwkSetOf([...managed.set.entries, ...files.entries]) };
}
