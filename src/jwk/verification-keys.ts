import * as jose from "jose";
import { KeyMaterialError, TokenError } from "../errors.ts";
import { type OkpPublicJwk, type PublicJwk, ed25519Members, keyIdentity, publicMembers, rsaBits } from "./public.ts";

/** An entry of a JWK Set that is not used, and why. The rest of the set is used all the same. */
export interface SkippedKey {
  /** Its place in the set, from 0. */
  readonly index: number;
  readonly kid: string | undefined;
  readonly reason: string;
}

/** The keys of a JWK Set that may verify signatures. */
export interface VerificationKeys {
  /** By kid, a text that is equal for equal keys. */
  readonly identities: ReadonlyMap<string, string>;
  readonly skipped: readonly SkippedKey[];
  /**
   * The key of a kid, for the alg of a token; `undefined` when the set has no usable key of that kid.
   *
   * @throws TokenError `ERR_TOKEN_ALG` when the key is of another alg: algorithms cannot be confused
   */
  find(kid: string, alg: string): jose.CryptoKey | Promise<jose.CryptoKey> | undefined;
}

interface Candidate {
  readonly jwk: PublicJwk | OkpPublicJwk;
  readonly algs: readonly string[];
  /** Imported when first asked for, once for each alg. */
  readonly imported: Map<string, jose.CryptoKey | Promise<jose.CryptoKey>>;
}

const ecAlgs = { "P-256": "ES256", "P-384": "ES384", "P-521": "ES512" } as const;
const rsaAlgs = ["RS256", "PS256", "RS384", "PS384", "RS512", "PS512"];
const edAlgs = ["EdDSA", "Ed25519"];
const maxModulusBits = 4096;
const maxExponentBits = 32;
const maxKeys = 256;

/**
 * Reads a JWK Set for verification. An entry is passed over when it has no kid, is not a signature key, is of an unknown type,
 * curve or size (RSA 2048 to 4096 bits, exponent at most 32), is malformed, or shares its kid with a different key.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT` when it is no JWK Set, or one of more than 256 keys
 * @see RFC 7517 section 5 (unusable entries are ignored)
 */
export async function verificationKeys(jwkSet: unknown): Promise<VerificationKeys> {
  const entries = (jwkSet as { keys?: unknown } | null | undefined)?.keys;
  if (!Array.isArray(entries))
    throw new KeyMaterialError("ERR_KEY_FORMAT", 'a JWK Set has an array "keys" (RFC 7517 section 5)');
  if (entries.length > maxKeys)
    throw new KeyMaterialError("ERR_KEY_FORMAT", `a JWK Set of more than ${maxKeys} keys is refused`);

  const usable: { readonly index: number; readonly kid: string; readonly candidate: Candidate }[] = [];
  const skipped: SkippedKey[] = [];
  for (const [index, entry] of (entries as unknown[]).entries()) {
    const kid = (entry as { kid?: unknown } | null)?.kid;
    const named = typeof kid === "string" && kid !== "" ? kid : undefined;
    try {
      if (named === undefined) throw new KeyMaterialError("ERR_KID_INVALID", "it has no kid");
      const candidate = candidateFrom(entry as Record<string, unknown>);
      await importFor(candidate, candidate.algs[0] as string);
      usable.push({ index, kid: named, candidate });
    } catch (error) {
      const reason = error instanceof KeyMaterialError ? error.message : "it is not a valid key";
      skipped.push({ index, kid: named, reason });
    }
  }

  const candidates = new Map<string, Candidate>();
  const ambiguous = new Set<string>();
  for (const { kid, candidate } of usable) {
    const twin = candidates.get(kid);
    if (twin !== undefined && identity(twin) !== identity(candidate)) ambiguous.add(kid);
    candidates.set(kid, twin === undefined ? candidate : forBothAlgs(twin, candidate));
  }
  for (const { index, kid } of usable.filter(({ kid }) => ambiguous.has(kid))) {
    candidates.delete(kid);
    skipped.push({ index, kid, reason: "its kid names two different keys, so neither is used" });
  }

  return {
    identities: new Map([...candidates].map(([kid, candidate]) => [kid, identity(candidate)])),
    skipped,
    find(kid, alg) {
      const candidate = candidates.get(kid);
      if (candidate === undefined) return undefined;
      return candidate.imported.get(alg) ?? importFor(candidate, alg);
    },
  };
}

function candidateFrom(entry: Readonly<Record<string, unknown>>): Candidate {
  const { kty, use, alg, key_ops: keyOps } = entry;
  if (use !== undefined && use !== "sig") throw new KeyMaterialError("ERR_KEY_PURPOSE", 'its "use" is not "sig"');
  if (keyOps !== undefined && !(Array.isArray(keyOps) && keyOps.includes("verify"))) {
    throw new KeyMaterialError("ERR_KEY_PURPOSE", 'its "key_ops" does not include "verify"');
  }
  const jwk = kty === "OKP" ? ed25519Members(entry, "the entry") : publicMembers(entry, "the entry");
  if (jwk.kty === "RSA") checkRsa(rsaBits(jwk));
  const fitting: readonly string[] = jwk.kty === "EC" ? [ecAlgs[jwk.crv]] : jwk.kty === "RSA" ? rsaAlgs : edAlgs;
  // An Ed25519 key serves under both of its names (RFC 9864 section 2.2).
  const algs =
    alg === undefined || (jwk.kty === "OKP" && edAlgs.includes(alg as string))
      ? fitting
      : fitting.filter((name) => name === alg);
  if (algs.length === 0) throw new KeyMaterialError("ERR_ALG_UNSUPPORTED", 'its "alg" does not fit the key');
  return { jwk, algs, imported: new Map() };
}

/** One key may be listed once for each alg. */
function forBothAlgs(one: Candidate, other: Candidate): Candidate {
  return {
    jwk: one.jwk,
    algs: [...one.algs, ...other.algs],
    imported: new Map([...one.imported, ...other.imported]),
  };
}

function checkRsa({ modulus, exponent }: { modulus: number; exponent: number }): void {
  if (modulus > maxModulusBits) {
    throw new KeyMaterialError("ERR_KEY_UNSUPPORTED", `an RSA modulus of more than ${maxModulusBits} bits is refused`);
  }
  if (exponent > maxExponentBits) {
    throw new KeyMaterialError(
      "ERR_KEY_UNSUPPORTED",
      `an RSA exponent of more than ${maxExponentBits} bits is refused`,
    );
  }
}

function importFor({ jwk, algs, imported }: Candidate, alg: string): Promise<jose.CryptoKey> {
  if (!algs.includes(alg))
    throw new TokenError("ERR_TOKEN_ALG", "the alg of the token is not that of the key of its kid");
  const importing = jose.importJWK({ ...jwk }, alg).then((key) => {
    imported.set(alg, key);
    return key;
  });
  imported.set(alg, importing);
  return importing;
}

function identity({ jwk }: Candidate): string {
  return jwk.kty === "OKP" ? `OKP ${jwk.crv} ${jwk.x}` : keyIdentity(jwk);
}
