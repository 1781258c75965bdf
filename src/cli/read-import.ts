import { createPrivateKey } from "node:crypto";
import { readFile } from "node:fs/promises";
import * as jose from "jose";
import { ConfigError, KeyMaterialError, ServiceError } from "../errors.ts";
import { type KeyMaterial, isKeySet, readKey, readKeySet } from "../jwk/read.ts";
import { type EncryptionAlg, checkEncryption } from "../keyset/keyset.ts";
import { checkDecrypts } from "../rotation/make-key.ts";
import { signerFrom } from "../signer/local.ts";
import type { KeyUse } from "../store/store.ts";

/** A private key from a file, checked, and not wrapped yet. */
export interface ImportedKey {
  readonly kid: string;
  readonly use: KeyUse;
  readonly alg: string;
  readonly privateJwk: jose.JWK;
}

export interface ImportOptions {
  /** What the key is for. Default: what a JWK says, else `sig` for EC on P-256; others have to be told. */
  readonly use?: KeyUse | undefined;
  /** Of a set, this key only; of a single key, the kid under which it was published, if its JWK does not say. */
  readonly kid?: string | undefined;
}

/** What was in a file: `isSet` of a JWK Set, whose order says which key is active. */
export interface ImportFile {
  readonly isSet: boolean;
  readonly keys: readonly ImportedKey[];
}

/**
 * Reads private keys that were used elsewhere: a PEM file (PKCS#8, SEC1, PKCS#1), a private JWK, or a private JWK Set. A set is
 * taken whole or not at all.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`
 * @throws ConfigError `ERR_OPTION_INVALID`: there is no such kid
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_NOT_P256`, `ERR_KEY_PURPOSE`, `ERR_ALG_UNSUPPORTED`,
 * `ERR_PRIVATE_KEY_MISSING`, `ERR_KEY_MISMATCH`
 */
export async function readImport(file: string, options: ImportOptions = {}): Promise<ImportFile> {
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    throw new ServiceError("ERR_FILE_UNREADABLE", `cannot read ${file} (${error.code})`, { cause: error });
  });
  const set = keySetIn(text);
  if (set === undefined) {
    const material = await readKey(text, file);
    return { isSet: false, keys: [await importedKey(material, privateMembersOf(text), file, options)] };
  }
  const all = readKeySet(set, file).map((material, index) => ({
    material,
    raw: set.keys[index] ?? {},
    place: index + 1,
  }));
  const chosen = all.filter(({ material }) => options.kid === undefined || material.kid === options.kid);
  if (chosen.length === 0) {
    if (all.length === 0) throw new KeyMaterialError("ERR_KEY_FORMAT", `${file}: the JWK Set is empty`);
    const kids = all.map(({ material }) => JSON.stringify(material.kid)).join(", ");
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      `${file} holds no key with the kid ${JSON.stringify(options.kid)}, but ${kids}`,
    );
  }
  const keys = await Promise.all(
    chosen.map(({ material, raw, place }) => importedKey(material, raw, nameIn(file, material, place), options)),
  );
  return { isSet: options.kid === undefined, keys };
}

interface PrivateKeySet {
  readonly keys: readonly jose.JWK[];
}

function keySetIn(text: string): PrivateKeySet | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isKeySet(value) ? (value as PrivateKeySet) : undefined;
  } catch {
    // PEM, or malformed; reading it as a key says which.
    return undefined;
  }
}

function nameIn(file: string, { kid }: KeyMaterial, place: number): string {
  return kid === undefined ? `${file}, key ${place}` : `${file}, kid ${JSON.stringify(kid)}`;
}

async function importedKey(
  material: KeyMaterial,
  raw: jose.JWK,
  name: string,
  options: ImportOptions,
): Promise<ImportedKey> {
  const { publicJwk } = material;
  if (material.privateKey === undefined) {
    throw new KeyMaterialError(
      "ERR_PRIVATE_KEY_MISSING",
      `${name}: this is a public key, and the private one is needed`,
    );
  }
  const isP256 = publicJwk.kty === "EC" && publicJwk.crv === "P-256";
  const isForEncryption = /^(RSA-OAEP|ECDH-ES)/.test(material.alg ?? "");
  const use = options.use ?? material.use ?? (isForEncryption ? "enc" : isP256 ? "sig" : undefined);
  if (use === undefined) {
    throw new KeyMaterialError(
      "ERR_KEY_PURPOSE",
      `${name}: nothing says what this ${publicJwk.kty} key is for; to import it as an encryption key, add --use enc`,
    );
  }
  if (use !== "sig" && use !== "enc") {
    throw new KeyMaterialError("ERR_KEY_PURPOSE", `${name}: "use" is ${JSON.stringify(use)}, not "sig" or "enc"`);
  }
  if (material.use !== undefined && material.use !== use) {
    throw new KeyMaterialError("ERR_KEY_PURPOSE", `${name}: the key says that its use is "${material.use}"`);
  }
  if (material.kid !== undefined && material.kid !== (options.kid ?? material.kid)) {
    const kids = `${JSON.stringify(material.kid)}, not ${JSON.stringify(options.kid)}`;
    throw new ConfigError("ERR_OPTION_INVALID", `${name}: the kid of the key is ${kids}`);
  }
  const kid = material.kid ?? options.kid ?? (await jose.calculateJwkThumbprint({ ...publicJwk }));
  if (use === "sig") {
    await signerFrom(material, name);
    return { kid, use, alg: "ES256", privateJwk: { ...publicJwk, d: raw.d } as jose.JWK };
  }
  const entry = { keyId: kid, publicKey: { ...publicJwk }, alg: material.alg as EncryptionAlg | undefined };
  const [checked] = await checkEncryption([entry]);
  const alg = checked?.jwk.alg ?? "";
  const privateJwk = { ...publicJwk, ...pick(raw) } as jose.JWK;
  await checkDecrypts(publicJwk, privateJwk, alg, name);
  return { kid, use, alg, privateJwk };
}

/** The private members as they are in the file; what reads keys for publication leaves those of RSA keys out. */
function privateMembersOf(text: string): jose.JWK {
  return text.includes("-----BEGIN ") ? createPrivateKeyJwk(text) : (JSON.parse(text) as jose.JWK);
}

function createPrivateKeyJwk(pem: string): jose.JWK {
  try {
    return createPrivateKey(pem).export({ format: "jwk" });
  } catch {
    // A public key, which is refused for that.
    return {};
  }
}

function pick(raw: jose.JWK): jose.JWK {
  const names = ["d", "p", "q", "dp", "dq", "qi"] as const;
  return Object.fromEntries(names.flatMap((name) => (typeof raw[name] === "string" ? [[name, raw[name]]] : [])));
}
