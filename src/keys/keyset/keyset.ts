import type { CryptoKey } from "jose";
import { importJWK } from "jose/key/import";
import { KeyMaterialError, keyError } from "../../base/errors.ts";
import { type PublicJwk, keyIdentity, publicMembers } from "../jwk/public.ts";
import { type KeyInput, readKey } from "../jwk/read.ts";
import { publishOnlySigner } from "../signer/local.ts";
import type { Signer } from "../signer/signer.ts";

/** One signing key of a keyset: with its private half, or without, for a process that only publishes. */
export interface SigningEntry {
  /** Published as `kid`; unique in both keysets. */
  readonly kid: string;
  /** Holds the private key, an ECDSA key on P-256. */
  readonly signer?: Signer | null | undefined;
  /** The public key as a JWK, where there is no signer: nothing is signed with it (`ERR_SIGNER_PUBLISH_ONLY`). */
  readonly publicKey?: PublicJwk | null | undefined;
}

/** Signing keys: the first one is active and signs; later ones are retiring and only verify. */
export type Keyset = readonly SigningEntry[];

const rsaAlgs = ["RSA-OAEP-256", "RSA-OAEP-384", "RSA-OAEP-512", "RSA-OAEP"] as const;
const ecAlgs = ["ECDH-ES", "ECDH-ES+A128KW", "ECDH-ES+A256KW"] as const;

/** Key management algorithms of encryption entries; the first of each family is its default. @see RFC 7518 section 4 */
export type EncryptionAlg = (typeof rsaAlgs)[number] | (typeof ecAlgs)[number];

/** One public key to which relying parties encrypt. */
export interface EncryptionEntry {
  /** Published as `kid`; unique in both keysets. */
  readonly kid: string;
  /** RSA of at least 2048 bits, or EC on P-256, P-384 or P-521. Of a private key, jwksd takes only the public half. */
  readonly publicKey: KeyInput;
  /** Default: the `alg` of a JWK, else `RSA-OAEP-256` for RSA and `ECDH-ES` for EC. */
  readonly alg?: EncryptionAlg | null | undefined;
  /** When the key is no longer published. Default: never. */
  readonly notAfter?: Date | null | undefined;
}

/** Encryption keys, in the order in which they are published. */
export type EncryptionKeyset = readonly EncryptionEntry[];

/** A published entry: public members, then `kid`, `alg`, `use`, in this order. */
export type Jwk = PublicJwk & { readonly kid: string; readonly alg: string; readonly use: "sig" | "enc" };

interface CheckedSigningKey {
  readonly jwk: Jwk;
  readonly signer: Signer;
  /** The published key, imported for verification. */
  readonly publicKey: CryptoKey;
}

/** Checked signing keys, the active key first. */
export type CheckedSigning = readonly [CheckedSigningKey, ...CheckedSigningKey[]];

/** Checked encryption keys; `notAfter` in epoch milliseconds, `Infinity` for none. */
export type CheckedEncryption = readonly { readonly jwk: Jwk; readonly notAfter: number }[];

/** Both keysets, ready to be published. Only the signers are shared with the caller. */
export interface CheckedKeysets {
  readonly signing: CheckedSigning;
  readonly encryption: CheckedEncryption;
}

/**
 * Checks both keysets.
 *
 * @throws KeyMaterialError see {@link checkSigning}, {@link checkEncryption} and {@link checkUnique}
 */
export async function checkKeyset(keyset: Keyset, encryptionKeyset: EncryptionKeyset = []): Promise<CheckedKeysets> {
  const [signing, encryption] = await Promise.all([checkSigning(keyset), checkEncryption(encryptionKeyset)]);
  checkUnique({ signing, encryption });
  return { signing, encryption };
}

/**
 * Checks the signing keyset by itself.
 *
 * @throws KeyMaterialError `ERR_KEYSET_EMPTY`, `ERR_KID_INVALID`, `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_PRIVATE_KEY_MISSING`
 */
export async function checkSigning(keyset: Keyset): Promise<CheckedSigning> {
  const [active, ...retiring] = await Promise.all(entriesOf(keyset).map(signingKey));
  if (active === undefined) {
    throw new KeyMaterialError(
      "ERR_KEYSET_EMPTY",
      "the keyset has no entry; the first entry is the active key, so there must be one",
    );
  }
  return [active, ...retiring];
}

/**
 * Checks the encryption keyset by itself.
 *
 * @throws KeyMaterialError `ERR_KID_INVALID`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_PURPOSE`, `ERR_ALG_UNSUPPORTED`,
 * `ERR_NOT_AFTER_INVALID`
 */
export async function checkEncryption(keyset: EncryptionKeyset): Promise<CheckedEncryption> {
  return Promise.all(entriesOf(keyset).map(encryptionKey));
}

/**
 * Refuses one kid on two entries, and one key under two kids, in and across the keysets.
 *
 * @throws KeyMaterialError `ERR_KID_DUPLICATE`, `ERR_KEY_DUPLICATE`, `ERR_KEY_IN_BOTH_KEYSETS`
 */
export function checkUnique({ signing, encryption }: CheckedKeysets): void {
  const kids = new Set<string>();
  const keys = new Map<string, Jwk>();
  for (const { jwk } of [...signing, ...encryption]) {
    const kid = JSON.stringify(jwk.kid);
    const twin = keys.get(keyIdentity(jwk));
    if (twin !== undefined && twin.use !== jwk.use) {
      const kidsOf = twin.kid === jwk.kid ? `kid ${kid}` : `kid ${JSON.stringify(twin.kid)} and kid ${kid}`;
      throw keyError("ERR_KEY_IN_BOTH_KEYSETS", kidsOf, "one key both to sign and to encrypt; make a second one");
    }
    if (kids.has(jwk.kid))
      throw new KeyMaterialError("ERR_KID_DUPLICATE", `kid ${kid} is on two entries; every kid names one key`);
    kids.add(jwk.kid);
    if (twin !== undefined) {
      throw new KeyMaterialError(
        "ERR_KEY_DUPLICATE",
        `kid ${JSON.stringify(twin.kid)} and kid ${kid} are one key; a key has one kid`,
      );
    }
    keys.set(keyIdentity(jwk), jwk);
  }
}

/** Copies of the entries, so that the caller cannot change them later. */
function entriesOf<Entry>(keyset: readonly Entry[]): readonly Entry[] {
  if (!Array.isArray(keyset)) throw new KeyMaterialError("ERR_KEY_FORMAT", "a keyset is an array of entries");
  // Where the array has a hole, too, there is an entry, which is refused.
  return Array.from(keyset as readonly Entry[], (entry) => ({ ...entry }));
}

async function signingKey(entry: SigningEntry, index: number): Promise<CheckedSigningKey> {
  const name = entryName(entry, "signing", index);
  const signer: Signer | undefined = entry.signer ?? (entry.publicKey ? publishOnlySigner(entry.publicKey) : undefined);
  if (typeof signer?.publicKey !== "object" || signer.publicKey === null) {
    throw keyError("ERR_KEY_FORMAT", name, "the signer has no public key in JWK form");
  }
  if (typeof signer.sign !== "function") {
    throw keyError("ERR_PRIVATE_KEY_MISSING", name, "the signer has no sign operation");
  }
  const { kty, crv } = signer.publicKey as Record<string, unknown>;
  if (kty !== "EC" || crv !== "P-256") {
    throw keyError("ERR_KEY_NOT_P256", name, "a signing key is an ECDSA key on P-256 (ES256)");
  }
  const members = publicMembers(signer.publicKey as Record<string, unknown>, name);
  const publicKey = await importable(members, "ES256", name);
  return { jwk: Object.freeze({ ...members, kid: entry.kid, alg: "ES256", use: "sig" as const }), signer, publicKey };
}

async function encryptionKey(entry: EncryptionEntry, index: number): Promise<CheckedEncryption[number]> {
  const name = entryName(entry, "encryption", index);
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
      "ERR_ALG_UNSUPPORTED",
      name,
      `alg ${JSON.stringify(alg)} does not fit an ${publicJwk.kty} key; use one of ${algs.join(", ")}`,
    );
  }
  await importable(publicJwk, alg, name);
  const notAfter = entry.notAfter ?? undefined;
  const until = notAfter === undefined ? Infinity : notAfter instanceof Date ? notAfter.getTime() : Number.NaN;
  if (Number.isNaN(until)) throw keyError("ERR_NOT_AFTER_INVALID", name, "notAfter is not a valid Date");
  return { jwk: Object.freeze({ ...publicJwk, kid: entry.kid, alg, use: "enc" as const }), notAfter: until };
}

function entryName(entry: SigningEntry | EncryptionEntry, keyset: string, index: number): string {
  const name = `entry ${index + 1} of the ${keyset} keyset`;
  const kid: unknown = (entry as { kid?: unknown } | null)?.kid;
  if (typeof kid !== "string" || kid === "" || !kid.isWellFormed()) {
    throw keyError("ERR_KID_INVALID", name, "kid must be a string that is not empty, of well-formed Unicode");
  }
  return `kid ${JSON.stringify(kid)}`;
}

/** Imports a key. Web Crypto checks that its point is on the curve. */
async function importable(jwk: PublicJwk, alg: string, name: string): Promise<CryptoKey> {
  try {
    return await importJWK({ ...jwk }, alg);
  } catch {
    throw keyError("ERR_KEY_FORMAT", name, `not a valid ${jwk.kty} public key`);
  }
}
