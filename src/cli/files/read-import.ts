import { readFile } from "node:fs/promises";
import type { JWK } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { keyError, invalidOption } from "../../base/errors.ts";
import { reading } from "../../base/file-errors.ts";
import { jsonOf } from "../../base/json.ts";
import { checkDecrypts } from "../../keys/jwk/decryption-check.ts";
import { type KeyMaterial, isKeySet, readKey, readKeySet, readKeyText } from "../../keys/jwk/read-key.ts";
import { signerFrom } from "../../keys/signer/local-signer.ts";
import { type EncryptionAlg, checkEncryption } from "../../publish/keyset-check.ts";
import type { KeyUse } from "../../rotation/rules/key-records.ts";

/** A checked private key from a file. */
export interface ImportedKey {
  readonly kid: string;
  readonly use: KeyUse;
  readonly alg: string;
  readonly privateJwk: JWK;
}

/** Options for an import. */
export interface ImportOptions {
  /**
   * Use of the key. Default: the JWK's `use` or, if that is missing, `enc` for an encryption `alg` and `sig` otherwise.
   * `sig` requires an EC key on P-256.
   */
  readonly use?: KeyUse | undefined;
  /** For a set, the kid of the key to import. For a single key without a kid, the kid to publish. */
  readonly kid?: string | undefined;
}

/**
 * Reads private keys from a PEM file (PKCS#8, SEC1, PKCS#1), a private JWK or a private JWK Set. If one key in a set is
 * invalid, none is imported.
 *
 * @returns the keys; `isSet` if the file was a JWK Set (the first key for each use in the set is the active one)
 * @throws IoError `ERR_FILE_UNREADABLE`
 * @throws ConfigError `ERR_OPTION_INVALID` if no key has the given kid
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_NOT_P256`, `ERR_KEY_PURPOSE`,
 * `ERR_PRIVATE_KEY_MISSING`, `ERR_KEY_MISMATCH`
 */
export async function readImport(
  file: string,
  options: ImportOptions = {},
): Promise<{ readonly isSet: boolean; readonly keys: readonly ImportedKey[] }> {
  const text = await reading(file, () => readFile(file, "utf8"));
  // PEM files and malformed files are not sets. Malformed files are reported by readKeyText.
  const value = jsonOf(text);
  const set = isKeySet(value) ? (value as { readonly keys: readonly (JWK | null)[] }) : undefined;
  if (set === undefined) {
    const raw = await readKeyText(text, file);
    checkSignsEs256(raw, file, options);
    return { isSet: false, keys: [await importedKey(await readKey({ ...raw }, file), raw, file, options)] };
  }
  if (!Array.isArray(set.keys)) readKeySet(set, file);
  const { kid } = options;
  const chosen = kid === undefined ? set.keys : set.keys.filter((raw) => raw?.kid === kid);
  if (chosen.length === 0) {
    if (set.keys.length === 0) throw keyError("ERR_KEY_FORMAT", file, "the JWK Set is empty");
    const kids = set.keys.map((raw) => JSON.stringify(raw?.kid)).join(", ");
    throw invalidOption(`${file} contains no key with the kid ${JSON.stringify(kid)}; choose one of its kids: ${kids}`);
  }
  const names = chosen.map((raw, index) => nameIn(file, raw, index + 1));
  chosen.forEach((raw, index) => checkSignsEs256(raw ?? {}, names[index] ?? file, options));
  const keys = readKeySet({ keys: chosen }, file).map((material, index) =>
    importedKey(material, chosen[index] ?? {}, names[index] ?? file, options),
  );
  return { isSet: kid === undefined, keys: await Promise.all(keys) };
}

function nameIn(file: string, raw: JWK | null, position: number): string {
  const kid = raw?.kid;
  return kid === undefined ? `${file}, key ${position}` : `${file}, kid ${JSON.stringify(kid)}`;
}

async function importedKey(
  material: KeyMaterial,
  raw: JWK,
  name: string,
  options: ImportOptions,
): Promise<ImportedKey> {
  const { publicJwk } = material;
  if (material.privateKey === undefined) {
    throw keyError("ERR_PRIVATE_KEY_MISSING", name, "this is a public key; use the private key");
  }
  const use = options.use ?? material.use ?? (decrypts(material) ? "enc" : "sig");
  if (use !== "sig" && use !== "enc") {
    throw keyError("ERR_KEY_PURPOSE", name, `"use" must be "sig" or "enc", not ${JSON.stringify(use)}`);
  }
  if (material.use !== undefined && material.use !== use) {
    throw keyError("ERR_KEY_PURPOSE", name, `the JWK's use is "${material.use}", but --use is "${use}"`);
  }
  if (material.kid !== undefined && material.kid !== (options.kid ?? material.kid)) {
    const kids = `${JSON.stringify(material.kid)}, not ${JSON.stringify(options.kid)}`;
    throw invalidOption(`${name}: the key's kid is ${kids}`);
  }
  const kid = material.kid ?? options.kid ?? (await calculateJwkThumbprint({ ...publicJwk }));
  if (use === "sig") {
    await signerFrom(material, name);
    return { kid, use, alg: "ES256", privateJwk: { ...publicJwk, d: raw.d } as JWK };
  }
  const entry = { kid, publicKey: { ...publicJwk }, alg: material.alg as EncryptionAlg | undefined };
  const [checked] = await checkEncryption([entry]);
  const alg = checked?.jwk.alg ?? "";
  const privateJwk = { ...publicJwk, ...privateMembers(raw) } as JWK;
  await checkDecrypts(publicJwk, privateJwk, alg, name);
  return { kid, use, alg, privateJwk };
}

const otherCurves: ReadonlySet<unknown> = new Set(["P-384", "P-521", "secp256k1", "Ed25519", "Ed448"]);

/**
 * Rejects a signing key that is not for ES256. Every key counts as a signing key unless its use or alg is for
 * encryption.
 *
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`
 */
function checkSignsEs256({ kty, crv, use, alg }: JWK, name: string, options: ImportOptions): void {
  const type = [kty, crv].find((name) => name === "RSA" || otherCurves.has(name ?? ""));
  const cannotSign = (options.use ?? use) === "enc" || decrypts({ alg });
  if (type === undefined || (cannotSign && !type.startsWith("Ed"))) return;
  throw keyError(
    "ERR_KEY_NOT_P256",
    name,
    `jwksd cannot sign with this ${type} key, because it signs only with ES256 (P-256); see "From RS256 or EdDSA" in docs/migrate.md`,
  );
}

function decrypts({ alg }: { readonly alg?: unknown }): boolean {
  return typeof alg === "string" && /^(RSA-OAEP|ECDH-ES)/.test(alg);
}

/** Returns the private members of a key. Needed because readKey omits them for RSA keys. */
function privateMembers(raw: JWK): JWK {
  const names = ["d", "p", "q", "dp", "dq", "qi"] as const;
  return Object.fromEntries(names.flatMap((name) => (typeof raw[name] === "string" ? [[name, raw[name]]] : [])));
}
