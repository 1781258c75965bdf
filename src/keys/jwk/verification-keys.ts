import type { CryptoKey } from "jose";
import { importPublicKey } from "#crypto";
import { KeyMaterialError, TokenError } from "../../base/errors.ts";
import { isGiven } from "../../base/json.ts";
import {
  type OkpPublicJwk,
  type PublicJwk,
  ed25519Members,
  keyIdentity,
  publicMembers,
  rsaBits,
} from "./public-members.ts";

/** An entry in a JWK Set that cannot be used. The set's other entries are still used. */
export interface SkippedKey {
  /** Index in the set, from 0. */
  readonly index: number;
  /** The entry's kid, unless the kid is longer than 1,024 characters. */
  readonly kid: string | undefined;
  /** The reason the entry is not used, as a sentence without key material. */
  readonly reason: string;
}

/** The keys in a JWK Set that may be used to verify signatures. */
export interface VerificationKeys {
  /** For each kid, a string that is the same for equal keys. */
  readonly identities: ReadonlyMap<string, string>;
  readonly skipped: readonly SkippedKey[];
  /**
   * Returns the key for a token's kid and alg, or `undefined` if the set has no usable key with this kid.
   *
   * @throws TokenError `ERR_TOKEN_ALG` if the key with this kid is for a different alg
   */
  find(this: void, kid: string, alg: string): CryptoKey | Promise<CryptoKey> | undefined;
}

interface Candidate {
  readonly index: number;
  readonly kid: string;
  readonly jwk: PublicJwk | OkpPublicJwk;
  readonly algs: readonly string[];
  /** Imported keys, by alg. Each key is imported at most once, and only if it is needed. */
  imported?: Map<string, CryptoKey | Promise<CryptoKey>>;
}

const ecAlgs = { "P-256": "ES256", "P-384": "ES384", "P-521": "ES512" } as const;
const rsaAlgs = ["RS256", "PS256", "RS384", "PS384", "RS512", "PS512"];
const edAlgs = ["EdDSA", "Ed25519"];
/** @see RFC 7518 sections 6.2.2 and 6.3.2; RFC 8037 section 2 */
const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth"];
/** @see RFC 7518 section 6.4.1 */
export const secretMembers: readonly string[] = [...privateMembers, "k"];
const maxRsaBits = { modulus: 4096, exponent: 32 } as const;
const maxKeys = 256;
/** Maximum length of a kid. There is a limit because kids are stored and compared. No legitimate kid is longer. */
export const maxKidLength = 1_024;
/** Maximum number of keys in a set from an untrusted host. Unusable entries count too, because they have to be read. */
export const maxUntrustedKeys = 64;

/**
 * Reads a JWK Set for verification and imports its keys. Skips entries that have no kid or a kid longer than 1,024
 * characters, are not for signatures, contain a private key, are malformed, or have an unsupported type, curve or size
 * (an RSA modulus must be 2048 to 4096 bits long, and an RSA exponent at most 32 bits). If two different keys share a
 * kid and an alg, skips both for that alg.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT` if the value is not a JWK Set or has more than 256 keys
 * @see RFC 7517 sections 4.5 and 5 (unusable entries are ignored)
 */
export async function verificationKeys(jwkSet: unknown): Promise<VerificationKeys> {
  const { candidates, skipped } = candidatesOf(entriesOf(jwkSet));
  const valid: Candidate[] = [];
  for (const candidate of candidates) {
    try {
      await importFor(candidate, candidate.algs[0] as string);
      valid.push(candidate);
    } catch {
      skipped.push({ index: candidate.index, kid: candidate.kid, reason: "it is not a valid key" });
    }
  }
  return keysOf(valid, skipped);
}

/**
 * Reads a JWK Set from an untrusted host. Imports each key only on first use, because importing costs CPU time. `find`
 * then rejects with KeyMaterialError `ERR_KEY_FORMAT` if the key is invalid, for example because its point is not on
 * the curve.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT` if the value is not a JWK Set or has more than 64 keys
 */
export function verificationKeysOnDemand(jwkSet: unknown): VerificationKeys {
  const { candidates, skipped } = candidatesOf(entriesOf(jwkSet, maxUntrustedKeys));
  return keysOf(candidates, skipped);
}

/** Returns the set's entries. @throws KeyMaterialError `ERR_KEY_FORMAT` if it is not a JWK Set or has too many keys */
export function entriesOf(jwkSet: unknown, most = maxKeys): readonly unknown[] {
  const entries = (jwkSet as { keys?: unknown } | null | undefined)?.keys;
  if (!Array.isArray(entries))
    throw new KeyMaterialError("ERR_KEY_FORMAT", 'a JWK Set must have a "keys" array (RFC 7517 section 5)');
  if (entries.length > most)
    throw new KeyMaterialError("ERR_KEY_FORMAT", `the JWK Set has more than the maximum of ${most} keys`);
  return entries as unknown[];
}

function candidatesOf(entries: readonly unknown[]): { candidates: Candidate[]; skipped: SkippedKey[] } {
  const candidates: Candidate[] = [];
  const skipped: SkippedKey[] = [];
  for (const [index, entry] of entries.entries()) {
    const kid = (entry as { kid?: unknown } | null)?.kid;
    const isNamed = typeof kid === "string" && kid !== "";
    const named = isNamed && kid.length <= maxKidLength ? kid : undefined;
    try {
      if (named === undefined) {
        const reason = isNamed ? `its kid has more than ${maxKidLength} characters` : "it has no kid";
        throw new KeyMaterialError("ERR_KID_INVALID", reason);
      }
      candidates.push({ index, kid: named, ...publicKeyOf(entry as Record<string, unknown>) });
    } catch (error) {
      const reason = error instanceof KeyMaterialError ? error.message : "it is not a valid key";
      skipped.push({ index, kid: named, reason });
    }
  }
  return { candidates, skipped };
}

function keysOf(candidates: readonly Candidate[], skipped: SkippedKey[]): VerificationKeys {
  const byKid = new Map<string, readonly Candidate[]>();
  for (const [kid, sharing] of Map.groupBy(candidates, ({ kid }) => kid)) {
    const { used, ambiguous } = apart(sharing);
    if (used.length > 0) byKid.set(kid, used);
    const reason = "another key with the same alg has this kid, so neither key is used";
    skipped.push(...ambiguous.map(({ index }) => ({ index, kid, reason })));
  }
  return {
    identities: new Map([...byKid].map(([kid, used]) => [kid, [...new Set(used.map(identity))].join()])),
    skipped: skipped.sort((one, other) => one.index - other.index),
    find(kid, alg) {
      const named = byKid.get(kid);
      if (named === undefined) return undefined;
      const candidate = named.find(({ algs }) => algs.includes(alg));
      if (candidate === undefined)
        throw new TokenError("ERR_TOKEN_ALG", "the token's alg does not match the alg of its key");
      return candidate.imported?.get(alg) ?? importFor(candidate, alg);
    },
  };
}

/**
 * Splits entries that share a kid into usable and ambiguous ones. Each entry keeps only the algs that no other key with
 * this kid has. An entry that is left without algs is ambiguous.
 *
 * @see RFC 7517 section 4.5
 */
function apart(sharing: readonly Candidate[]): { used: readonly Candidate[]; ambiguous: readonly Candidate[] } {
  if (sharing.length === 1) return { used: sharing, ambiguous: [] };
  const isOwn = (candidate: Candidate, alg: string): boolean =>
    sharing.every((other) => !other.algs.includes(alg) || identity(other) === identity(candidate));
  const own = sharing.map((candidate) => ({
    ...candidate,
    algs: candidate.algs.filter((alg) => isOwn(candidate, alg)),
  }));
  return { used: own.filter(({ algs }) => algs.length > 0), ambiguous: own.filter(({ algs }) => algs.length === 0) };
}

function publicKeyOf(entry: Readonly<Record<string, unknown>>): Pick<Candidate, "jwk" | "algs"> {
  const { kty, use, alg, key_ops: keyOps } = entry;
  if (privateMembers.some((member) => isGiven(entry[member])))
    throw new KeyMaterialError(
      "ERR_KEY_PURPOSE",
      "it contains a private key, so anyone who can read the set can sign with it",
    );
  if (use !== undefined && use !== "sig") throw new KeyMaterialError("ERR_KEY_PURPOSE", 'its "use" is not "sig"');
  if (keyOps !== undefined && !(Array.isArray(keyOps) && keyOps.includes("verify"))) {
    throw new KeyMaterialError("ERR_KEY_PURPOSE", 'its "key_ops" does not include "verify"');
  }
  if (Array.isArray(keyOps) && new Set(keyOps).size < keyOps.length)
    throw new KeyMaterialError("ERR_KEY_FORMAT", 'its "key_ops" contains a duplicate (RFC 7517 section 4.3)');
  const jwk = kty === "OKP" ? ed25519Members(entry, "the entry") : publicMembers(entry, "the entry");
  if (jwk.kty === "RSA") checkRsa(rsaBits(jwk));
  const fitting: readonly string[] = jwk.kty === "EC" ? [ecAlgs[jwk.crv]] : jwk.kty === "RSA" ? rsaAlgs : edAlgs;
  // An Ed25519 key is used under both names of its alg (RFC 9864 section 2.2).
  const algs =
    alg === undefined || (jwk.kty === "OKP" && edAlgs.includes(alg as string))
      ? fitting
      : fitting.filter((name) => name === alg);
  if (algs.length === 0) throw new KeyMaterialError("ERR_KEY_UNSUPPORTED", 'its "alg" does not match the key');
  return { jwk, algs };
}

function checkRsa(bits: Readonly<Record<"modulus" | "exponent", number>>): void {
  for (const part of ["modulus", "exponent"] as const) {
    const most = maxRsaBits[part];
    if (bits[part] <= most) continue;
    throw new KeyMaterialError("ERR_KEY_UNSUPPORTED", `its RSA ${part} has more than the maximum of ${most} bits`);
  }
}

function importFor(candidate: Candidate, alg: string): Promise<CryptoKey> {
  const imported = (candidate.imported ??= new Map());
  const importing = importPublicKey({ ...candidate.jwk }, alg).then(
    (key) => {
      imported.set(alg, key);
      return key;
    },
    (cause: unknown) => {
      throw new KeyMaterialError("ERR_KEY_FORMAT", "the key with this kid is invalid", { cause });
    },
  );
  imported.set(alg, importing);
  return importing;
}

function identity({ jwk }: Candidate): string {
  return jwk.kty === "OKP" ? `OKP ${jwk.crv} ${jwk.x}` : keyIdentity(jwk);
}
