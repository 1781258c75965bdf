import { readFile, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { KeyMaterialError, IoError, keyError } from "../base/errors.ts";
import { reading } from "../base/file-errors.ts";
import { jsonOf } from "../base/json.ts";
import { keyIdentity } from "../keys/jwk/public-members.ts";
import { type KeyMaterial, isKeySet, readKey, readKeySet } from "../keys/jwk/read-key.ts";
import { signerFrom } from "../keys/signer/local-signer.ts";
import type { EncryptionAlg, EncryptionEntry, Keyset, SigningEntry } from "../publish/keyset-check.ts";

/** Keys read from files. */
export interface ReadKeysetResult<Entry> {
  /** Entries in keyset order. */
  readonly entries: readonly Entry[];
  /** Warnings for the operator, for example about file permissions. */
  readonly warnings: readonly string[];
}

/** Reports whether a file with this name in a key folder is read as a key. */
export function isKeyFileName(name: string): boolean {
  return !name.startsWith(".") && /\.(pem|key|jwk|json)$/.test(name);
}

/**
 * Reads a signing keyset.
 *
 * - A file contains a private JWK Set, in keyset order, or one private key (JWK or PEM).
 * - A folder contains one key per file whose name ends in `.pem`, `.key`, `.jwk` or `.json`. Files are sorted by the
 *   code units of their names and the last one is the active key, so names should begin with a date (`2026-11-20.pem`).
 *   Names that begin with a dot are ignored.
 *
 * The `kid` is taken from the JWK. If the JWK has no kid, it is the key's RFC 7638 thumbprint.
 *
 * @example
 * ```ts
 * const { entries: keyset, warnings } = await readKeyset("./keys");
 * for (const warning of warnings) console.warn(warning);
 * const provider = await createProvider({ issuer, keyset });
 * ```
 *
 * @throws IoError `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEYSET_EMPTY`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_NOT_P256`,
 * `ERR_KEY_PURPOSE`, `ERR_PRIVATE_KEY_MISSING`, `ERR_KEY_MISMATCH`
 */
export async function readKeyset(path: string): Promise<ReadKeysetResult<SigningEntry> & { readonly entries: Keyset }> {
  const { keys, warnings } = await readKeys(path);
  const entries = await Promise.all(
    keys.map(async ({ kid, name, material }) => ({ kid, signer: await signerFrom(material, name) })),
  );
  return { entries, warnings };
}

/**
 * Reads an encryption keyset from a file or folder. The same rules apply as in {@link readKeyset}, except that public
 * keys are sufficient. A JWK's `alg` and `exp` become its entry's `alg` and `notAfter`.
 *
 * @throws IoError `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEYSET_EMPTY`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_PURPOSE`
 */
export async function readEncryptionKeyset(path: string): Promise<ReadKeysetResult<EncryptionEntry>> {
  const { keys, warnings } = await readKeys(path);
  const entries = keys.map(({ kid, name, material }) => {
    const { publicJwk, alg, use, exp } = material;
    if (use !== undefined && use !== "enc") {
      throw keyError("ERR_KEY_PURPOSE", name, `"use" is ${JSON.stringify(use)}, not "enc"`);
    }
    return {
      kid,
      publicKey: { ...publicJwk },
      // The provider later checks that the alg fits the key.
      alg: alg as EncryptionAlg | undefined,
      notAfter: exp === undefined ? undefined : new Date(exp * 1000),
    };
  });
  return { entries, warnings };
}

interface ReadKey {
  readonly kid: string;
  /** The key's name in messages. */
  readonly name: string;
  readonly material: KeyMaterial;
}

async function readKeys(path: string): Promise<{ keys: readonly ReadKey[]; warnings: readonly string[] }> {
  const stats = await reading(path, () => stat(path));
  const isFolder = stats.isDirectory();
  const files = isFolder ? await keyFilesOf(path) : [path];
  const read = await Promise.all(files.map((file) => readKeyFile(file, !isFolder)));
  if (isFolder) checkOneFilePerKey(read.flatMap(({ keys }) => keys));
  const warnings = read.flatMap((file) => file.warnings);
  if (isFolder && process.platform !== "win32" && (stats.mode & 0o022) !== 0) {
    warnings.push(
      `users other than the owner can write to ${path} and replace the active key; fix it with: chmod go-w ${path}`,
    );
  }
  return { keys: read.flatMap(({ keys }) => keys), warnings };
}

/** Rejects a key that is in two files. The message names both files; a later check could name only the kid. */
function checkOneFilePerKey(keys: readonly ReadKey[]): void {
  const names = new Map<string, string>();
  for (const { name, material } of keys) {
    const twin = names.get(keyIdentity(material.publicJwk));
    if (twin !== undefined)
      throw new KeyMaterialError("ERR_KEY_DUPLICATE", `${twin} and ${name} contain the same key; remove one`);
    names.set(keyIdentity(material.publicJwk), name);
  }
}

async function keyFilesOf(folder: string): Promise<string[]> {
  const names = await reading(folder, () => readdir(folder));
  const files = names.filter(isKeyFileName);
  if (files.length === 0) {
    throw new KeyMaterialError(
      "ERR_KEYSET_EMPTY",
      `${folder} contains no key file (.pem, .key, .jwk or .json); generate one with: jwksd keygen --out ${join(folder, `${new Date().toISOString().slice(0, 10)}.jwk`)}`,
    );
  }
  // Sorted by code unit rather than by locale, so that the order is the same on all machines.
  return files
    .sort()
    .toReversed()
    .map((name) => join(folder, name));
}

async function readKeyFile(file: string, canBeSet: boolean): Promise<{ keys: ReadKey[]; warnings: string[] }> {
  const stats = await reading(file, () => stat(file));
  // Opening a named pipe could block forever.
  if (!stats.isFile()) throw new IoError("ERR_FILE_UNREADABLE", `cannot read ${file} (not a regular file)`);
  const text = await reading(file, () => readFile(file, "utf8"));
  const materials = canBeSet && isKeySet(jsonOf(text)) ? readKeySet(text, file) : [await readKey(text, file)];
  const keys = await Promise.all(
    materials.map(async (material, index) => ({
      kid: material.kid ?? (await calculateJwkThumbprint({ ...material.publicJwk })),
      name: materials.length > 1 ? `${file}, key ${index + 1}` : file,
      material,
    })),
  );
  const isPrivate = materials.some(({ privateKey }) => privateKey !== undefined);
  const warnings = isPrivate ? permissionWarnings(file, stats) : [];
  return { keys, warnings };
}

/**
 * The part of a file's stats that jwksd uses. It is not a Node type, because a program might not have Node's types
 * installed.
 */
interface FileStats {
  readonly mode: number;
  readonly uid: number;
  isFile(): boolean;
}

/**
 * Returns warnings about a secret file's mode. Does not warn if a file owned by root is readable by its group, because
 * that is how Kubernetes mounts secrets.
 */
export function permissionWarnings(file: string, stats: FileStats): string[] {
  const mode = stats.mode & 0o777;
  const others = stats.uid === 0 && process.getuid?.() !== 0 ? 0o037 : 0o077;
  if (process.platform === "win32" || !stats.isFile() || (mode & others) === 0) return [];
  return [`users other than the owner can read ${file} (mode 0${mode.toString(8)}); fix it with: chmod 600 ${file}`];
}
