import type { CryptoKey } from "jose";
import { importJWK } from "jose/key/import";
import { KeyMaterialError, keyError } from "../base/errors.ts";
import { type Optional, isPromise } from "../base/options.ts";
import { type PublishedJwk, type PublicJwk, publicMembers, publishedJwk } from "../keys/jwk/public-members.ts";
import { type JwkObject, type KeyInput, readKey } from "../keys/jwk/read-key.ts";
import { localPublicKey } from "../keys/signer/local-signer.ts";
import type { Signer } from "../keys/signer/signer.ts";
import { type JwkSet, type JwkSetEntry, jwkSetOf } from "./jwk-set.ts";

/** A signing key in a keyset. It has no private key in a process that only publishes keys. */
export interface SigningEntry {
  /** Key ID, published as `kid`; unique across both keysets. */
  readonly kid: string;
  /** Signer that has the private key, which is an ECDSA key on P-256. */
  readonly signer?: Optional<Signer>;
  /**
   * Public key as a JWK, for an entry without a signer. Signing with this entry fails (`ERR_SIGNER_PUBLISH_ONLY`).
   */
  readonly publicKey?: Optional<JwkObject>;
}

/** Signing keys. The first one is active and signs; the others are retiring and only verify. */
export type Keyset = readonly SigningEntry[];

const rsaAlgs = ["RSA-OAEP-256", "RSA-OAEP-384", "RSA-OAEP-512", "RSA-OAEP"] as const;
const ecAlgs = ["ECDH-ES", "ECDH-ES+A128KW", "ECDH-ES+A256KW"] as const;

/**
 * Key management algorithms that encryption entries can have. The first one in each family is the default.
 *
 * @see RFC 7518 section 4
 */
export const encryptionAlgs = [...rsaAlgs, ...ecAlgs] as const;
export type EncryptionAlg = (typeof encryptionAlgs)[number];

/** A public key that relying parties encrypt to. */
export interface EncryptionEntry {
  /** Key ID, published as `kid`; unique across both keysets. */
  readonly kid: string;
  /**
   * RSA key of at least 2048 bits, or EC key on P-256, P-384 or P-521. If it is a private key, jwksd uses only its
   * public part.
   */
  readonly publicKey: KeyInput;
  /**
   * Key management algorithm. Default: the JWK's `alg`. If it has no `alg`, `RSA-OAEP-256` for RSA and `ECDH-ES` for
   * EC.
   */
  readonly alg?: Optional<EncryptionAlg>;
  /** Time at which the key stops being published. Default: never. */
  readonly notAfter?: Optional<Date>;
}

/** Encryption keys in the order in which they are published. */
export type EncryptionKeyset = readonly EncryptionEntry[];

/** Keysets as passed by the caller. */
export interface Keysets {
  /** Signing keys, starting with the active one. */
  readonly keyset: Keyset;
  readonly encryptionKeyset: EncryptionKeyset;
}

/** Checked signing keys, with the first key's signer. */
export interface CheckedSigning {
  readonly entries: readonly [JwkSetEntry, ...JwkSetEntry[]];
  /** Signer of the active key; `undefined` in a process that only publishes keys. */
  readonly signer: Signer | undefined;
}

/**
 * Checks both keysets and creates the JWK Set for them.
 *
 * @throws KeyMaterialError, for the same reasons as {@link checkSigning}, {@link checkEncryption} and {@link jwkSetOf}
 */
export async function checkKeysets({
  keyset,
  encryptionKeyset,
}: Keysets): Promise<{ readonly signing: CheckedSigning; readonly set: JwkSet }> {
  const [signing, encryption] = await Promise.all([checkSigning(keyset), checkEncryption(encryptionKeyset)]);
  return { signing, set: await jwkSetOf([...signing.entries, ...encryption]) };
}

/** Returns keysets for previously published keys. These keysets cannot sign. */
export function publishedKeysets(jwks: readonly PublishedJwk[]): Keysets {
  const keysetFor = (use: PublishedJwk["use"]) =>
    jwks.filter((jwk) => jwk.use === use).map((jwk) => ({ kid: jwk.kid, publicKey: { ...jwk } }));
  return { keyset: keysetFor("sig"), encryptionKeyset: keysetFor("enc") };
}

/**
 * Checks the signing keyset alone.
 *
 * @throws KeyMaterialError `ERR_KEYSET_EMPTY`, `ERR_KID_INVALID`, `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`,
 * `ERR_PRIVATE_KEY_MISSING`
 */
export async function checkSigning(keyset: Keyset): Promise<CheckedSigning> {
  const given = entriesOf(keyset);
  const [active, ...retiring] = await Promise.all(given.map(signingEntry));
  if (active === undefined) {
    throw new KeyMaterialError("ERR_KEYSET_EMPTY", "the keyset is empty; add the active key as its first entry");
  }
  return { entries: [active, ...retiring], signer: given[0]?.signer ?? undefined };
}

/**
 * Checks the encryption keyset alone.
 *
 * @throws KeyMaterialError `ERR_KID_INVALID`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_PURPOSE`
 */
export async function checkEncryption(keyset: EncryptionKeyset): Promise<JwkSetEntry[]> {
  return Promise.all(entriesOf(keyset).map(encryptionEntry));
}

/** Copies the entries, so that the caller cannot change them later. */
function entriesOf<Entry>(keyset: readonly Entry[]): readonly Entry[] {
  if (!Array.isArray(keyset)) throw new KeyMaterialError("ERR_KEY_FORMAT", "a keyset must be an array of entries");
  // A hole in the array becomes an entry, which is then rejected.
  return Array.from(keyset as readonly Entry[], (entry) => ({ ...entry }));
}

async function signingEntry({ kid, signer, publicKey: given }: SigningEntry, index: number): Promise<JwkSetEntry> {
  const name = entryName(kid, "signing", index);
  const jwk: unknown = signer ? signer.publicKey : given;
  if (typeof jwk !== "object" || jwk === null) {
    const problem = isPromise(signer)
      ? "the signer is a promise; await it"
      : "the signer has no public key in JWK form";
    throw keyError("ERR_KEY_FORMAT", name, problem);
  }
  if (signer && typeof signer.sign !== "function") {
    throw keyError("ERR_PRIVATE_KEY_MISSING", name, "the signer has no sign operation");
  }
  const { kty, crv } = jwk as Record<string, unknown>;
  if (kty !== "EC" || crv !== "P-256") {
    throw keyError("ERR_KEY_NOT_P256", name, "a signing key must be an ECDSA key on P-256 (ES256)");
  }
  const publicJwk = publicMembers(jwk as Record<string, unknown>, name);
  const publicKey = (signer && localPublicKey(signer)) ?? (await importable(publicJwk, "ES256", name));
  return { jwk: publishedJwk({ publicJwk, kid, alg: "ES256", use: "sig" }), publicKey, notAfter: Infinity };
}

async function encryptionEntry(entry: EncryptionEntry, index: number): Promise<JwkSetEntry> {
  const { kid } = entry;
  const name = entryName(kid, "encryption", index);
  const material = await readKey(entry.publicKey, name);
  const { publicJwk, use, keyOps } = material;
  if (use !== undefined && use !== "enc") {
    throw keyError("ERR_KEY_PURPOSE", name, `"use" is ${JSON.stringify(use)}, not "enc"`);
  }
  if (keyOps?.some((operation) => operation === "sign" || operation === "verify") === true) {
    throw keyError("ERR_KEY_PURPOSE", name, '"key_ops" says that the key is for signatures');
  }
  const algs: readonly [string, ...string[]] = publicJwk.kty === "RSA" ? rsaAlgs : ecAlgs;
  const alg = entry.alg ?? material.alg ?? algs[0];
  if (!algs.includes(alg) || !algs.includes(material.alg ?? alg)) {
    throw keyError(
      "ERR_KEY_UNSUPPORTED",
      name,
      `alg ${JSON.stringify(alg)} cannot be used with an ${publicJwk.kty} key; use one of ${algs.join(", ")}`,
    );
  }
  const publicKey = await importable(publicJwk, alg, name);
  const notAfter = entry.notAfter ?? undefined;
  const until = notAfter === undefined ? Infinity : notAfter instanceof Date ? notAfter.getTime() : Number.NaN;
  if (Number.isNaN(until)) throw keyError("ERR_KEY_FORMAT", name, "notAfter must be a valid Date");
  return { jwk: publishedJwk({ publicJwk, kid, alg, use: "enc" }), publicKey, notAfter: until };
}

function entryName(kid: unknown, keyset: string, index: number): string {
  const name = `entry ${index + 1} of the ${keyset} keyset`;
  if (typeof kid !== "string" || kid === "" || !kid.isWellFormed()) {
    throw keyError("ERR_KID_INVALID", name, "kid must be a non-empty string of well-formed Unicode");
  }
  return `kid ${JSON.stringify(kid)}`;
}

/** Imports a key, which makes Web Crypto check that its point is on the curve. */
async function importable(jwk: PublicJwk, alg: string, name: string): Promise<CryptoKey> {
  try {
    return await importJWK({ ...jwk }, alg);
  } catch {
    throw keyError("ERR_KEY_FORMAT", name, `this is not a valid ${jwk.kty} public key`);
  }
}
