import type { CryptoKey, JWK } from "jose";
import { exportJWK } from "jose/key/export";
import { keyError } from "../../base/errors.ts";
import { isGiven } from "../../base/json.ts";
import { readPem } from "./pem.ts";
import { type PublicJwk, checkSize, publicMembers } from "./public-members.ts";

/** A Web Crypto key pair. */
export interface CryptoKeyPair {
  /** Private key. It does not have to be extractable. */
  readonly privateKey: CryptoKey;
  /** Public key. In Web Crypto, every public key is extractable. */
  readonly publicKey: CryptoKey;
}

/** The part of `KeyObject` from `node:crypto` that jwksd uses. */
export interface KeyObjectLike {
  /** `private`, `public` or `secret`. A secret key is rejected. */
  readonly type: string;
  /** Key type, such as `ec` or `rsa`. */
  readonly asymmetricKeyType?: string | undefined;
  /** Exports the key as a JWK. */
  export(options: { format: "jwk" }): unknown;
}

/** A JWK object, with any members. @see RFC 7517 section 4 */
export type JwkObject = Readonly<Record<string, unknown>> | { readonly kty?: unknown };

/**
 * A key in one of these forms: a JWK (object or JSON text), PEM text (PKCS#8, SPKI, SEC1 or PKCS#1), a `KeyObject`, a
 * `CryptoKey`, or, if the private key is not extractable, a `CryptoKeyPair`.
 */
export type KeyInput = string | JwkObject | KeyObjectLike | CryptoKey | CryptoKeyPair;

const forSignatures = /^(ECDSA|RSASSA-PKCS1-v1_5|RSA-PSS|Ed25519)$/;

/**
 * The result of reading a key: the public members, the private key if the input contained one, and other members if the
 * input was a JWK.
 */
export interface KeyMaterial {
  readonly publicJwk: PublicJwk;
  /** A private JWK, or a private `CryptoKey` that is not extractable. */
  readonly privateKey?: JWK | CryptoKey;
  readonly kid?: string;
  readonly alg?: string;
  readonly use?: string;
  readonly keyOps?: readonly unknown[];
  /** The JWK's `exp`, in seconds since the epoch. @see OpenID Federation 1.0 section 8.7.2 */
  readonly exp?: number;
}

/**
 * Reads one key, in any of the forms that {@link KeyInput} lists. Error messages never quote the input.
 *
 * @param name the key's name in messages, such as `kid "2026-11"` or a file name
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_MISMATCH`
 */
export async function readKey(input: KeyInput, name: string): Promise<KeyMaterial> {
  if (typeof input === "string") return readJwk({ ...(await readKeyText(input, name)) }, name);
  if (typeof input !== "object" || input === null) {
    throw keyError(
      "ERR_KEY_FORMAT",
      name,
      `a key must be a JWK, PEM text, a KeyObject or a CryptoKey, not ${typeof input}`,
    );
  }
  if (isKeyPair(input)) {
    const { publicJwk, use } = await readKey(input.publicKey, name);
    const isOpaque = isCryptoKey(Object(input.privateKey) as object) && !input.privateKey.extractable;
    const half = isOpaque ? { privateKey: input.privateKey } : await readKey(input.privateKey, name);
    return { publicJwk, ...(use !== undefined && { use }), ...(half.privateKey && { privateKey: half.privateKey }) };
  }
  if (isCryptoKey(input)) {
    if (!input.extractable) {
      const hint = input.type === "private" ? "; pass the CryptoKeyPair, which includes its public key" : "";
      throw keyError("ERR_KEY_FORMAT", name, `this CryptoKey is not extractable${hint}`);
    }
    // A CryptoKey's JWK has no "use".
    const use = forSignatures.test(input.algorithm.name) ? "sig" : "enc";
    return { ...readJwk(await exportJWK(input), name), use };
  }
  if (isKeyObject(input)) {
    if (input.type === "secret") throw keyError("ERR_KEY_UNSUPPORTED", name, "a secret key has no public key");
    return readJwk(await exported(() => exportJWK(input as Parameters<typeof exportJWK>[0]), name), name);
  }
  return readJwk(input, name);
}

/**
 * Returns the only key in JSON or PEM text, as a JWK with all its members. Does not check the members.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_MISMATCH`
 */
export async function readKeyText(text: string, name: string): Promise<JWK> {
  if (text.includes("-----BEGIN ")) return readPem(text, name);
  const value = parseJson(text, name);
  if (isKeySet(value)) throw keyError("ERR_KEY_FORMAT", name, "this is a JWK Set, but a single key was expected");
  if (typeof value !== "object" || value === null)
    throw keyError("ERR_KEY_FORMAT", name, "this is not a JWK; a JWK must be a JSON object");
  return value;
}

/**
 * Reads the keys in a JWK Set (object or JSON text), in order.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`
 * @see RFC 7517 section 5
 */
export function readKeySet(input: string | object, name: string): KeyMaterial[] {
  const set = typeof input === "string" ? parseJson(input, name) : input;
  const keys: unknown = (set as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(keys)) {
    throw keyError("ERR_KEY_FORMAT", name, 'a JWK Set must be a JSON object with a "keys" array (RFC 7517 section 5)');
  }
  return keys.map((key: unknown, index) => {
    const where = `${name}, key ${index + 1} of ${keys.length}`;
    if (typeof key !== "object" || key === null) {
      throw keyError("ERR_KEY_FORMAT", where, "this is not a JSON object");
    }
    return readJwk(key as Record<string, unknown>, where);
  });
}

/** Reports whether a JSON value has the shape of a JWK Set rather than a JWK. */
export function isKeySet(value: unknown): boolean {
  return typeof value === "object" && value !== null && "keys" in value;
}

function readJwk(jwk: Readonly<Record<string, unknown>>, name: string): KeyMaterial {
  const { kid, alg, use, exp, key_ops: keyOps } = jwk;
  for (const [member, value] of Object.entries({ kid, alg, use })) {
    if (value !== undefined && typeof value !== "string") {
      throw keyError("ERR_KEY_FORMAT", name, `"${member}" is not a string (RFC 7517 section 4)`);
    }
  }
  if (exp !== undefined && !(typeof exp === "number" && Number.isFinite(exp))) {
    throw keyError("ERR_KEY_FORMAT", name, '"exp" is not a number of seconds since the epoch');
  }
  if (keyOps !== undefined && !Array.isArray(keyOps)) {
    throw keyError("ERR_KEY_FORMAT", name, '"key_ops" is not an array (RFC 7517 section 4.3)');
  }
  const shownName = typeof kid === "string" ? `${name}, kid ${JSON.stringify(kid)}` : name;
  const publicJwk = publicMembers(jwk, shownName);
  return {
    publicJwk,
    ...(isGiven(jwk["d"]) && { privateKey: privateMembers(jwk, publicJwk, shownName) }),
    ...(typeof kid === "string" && { kid }),
    ...(typeof alg === "string" && { alg }),
    ...(typeof use === "string" && { use }),
    ...(typeof exp === "number" && { exp }),
    ...(Array.isArray(keyOps) && { keyOps }),
  };
}

function privateMembers(jwk: Readonly<Record<string, unknown>>, publicJwk: PublicJwk, name: string): JWK {
  // RSA keys are only published for encryption and never sign, so the private key is dropped.
  if (publicJwk.kty === "RSA") return { ...publicJwk };
  checkSize(jwk, "d", publicJwk.crv, name);
  return { ...publicJwk, d: jwk["d"] as string };
}

/** Runs a parser and replaces its error, which might quote the key. */
async function exported<T>(parse: () => Promise<T>, name: string): Promise<T> {
  try {
    return await parse();
  } catch {
    throw keyError("ERR_KEY_FORMAT", name, "this is not a readable EC or RSA key");
  }
}

function parseJson(text: string, name: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own message quotes the text around the error.
    throw keyError("ERR_KEY_FORMAT", name, "this is neither PEM nor JSON");
  }
}

function isKeyPair(input: object): input is CryptoKeyPair {
  return "privateKey" in input && "publicKey" in input;
}

/** Reports whether a key is a `CryptoKey`. */
export function isCryptoKey(input: object): input is CryptoKey {
  return "algorithm" in input && "extractable" in input && "usages" in input;
}

function isKeyObject(input: object): input is KeyObjectLike {
  return "type" in input && "export" in input && typeof input.export === "function";
}
