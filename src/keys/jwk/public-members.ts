import * as base64url from "jose/base64url";
import { keyError } from "../../base/errors.ts";

/** Only the public members of an elliptic-curve key. @see RFC 7518 section 6.2.1 */
export interface EcPublicJwk {
  /** The key type. */
  readonly kty: "EC";
  /** The curve. */
  readonly crv: "P-256" | "P-384" | "P-521";
  /** The x coordinate in base64url, at full size with leading zeros. */
  readonly x: string;
  /** The y coordinate in base64url, at full size with leading zeros. */
  readonly y: string;
}

/** Only the public members of an RSA key. @see RFC 7518 section 6.3.1 */
export interface RsaPublicJwk {
  /** The key type. */
  readonly kty: "RSA";
  /** The modulus as a Base64urlUInt, at least 2048 bits long. */
  readonly n: string;
  /** The exponent as a Base64urlUInt. */
  readonly e: string;
}

/**
 * The public members of an Ed25519 key. jwksd verifies with Ed25519 keys but does not publish them.
 *
 * @see RFC 8037 section 2
 */
export interface OkpPublicJwk {
  readonly kty: "OKP";
  readonly crv: "Ed25519";
  readonly x: string;
}

export type PublicJwk = EcPublicJwk | RsaPublicJwk;

/** A published key: its public members, followed by `kid`, `alg` and `use`, in that order. */
export type PublishedJwk = PublicJwk & { readonly kid: string; readonly alg: string; readonly use: "sig" | "enc" };

/** Returns the published form of a key. @param key a key with the members that {@link publicMembers} returns */
export function publishedJwk({
  publicJwk,
  kid,
  alg,
  use,
}: Pick<PublishedJwk, "kid" | "alg" | "use"> & { readonly publicJwk: PublicJwk }): PublishedJwk {
  return Object.freeze({ ...publicJwk, kid, alg, use });
}

const coordinateBytes = { "P-256": 32, "P-384": 48, "P-521": 66 } as const;
const minRsaBits = 2048;

/**
 * Copies a JWK's public members, using a list for each `kty`, so that no private member is ever published. Checks that
 * the members are canonical base64url, that coordinates have their full size, and that RSA integers have a safe size
 * and no leading zeros. Whether a point is on its curve is checked later, when the key is imported.
 *
 * @param name the key's name in messages, such as `kid "2026-11"`
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`
 */
export function publicMembers(jwk: Readonly<Record<string, unknown>>, name: string): PublicJwk {
  if (jwk["kty"] === "EC") {
    const crv = jwk["crv"];
    if (crv !== "P-256" && crv !== "P-384" && crv !== "P-521") {
      throw keyError(
        "ERR_KEY_UNSUPPORTED",
        name,
        `curve ${shown(crv)} is not supported; use P-256 (or, for encryption, P-256, P-384 or P-521)`,
      );
    }
    for (const member of ["x", "y"]) checkSize(jwk, member, crv, name);
    return { kty: "EC", crv, x: jwk["x"] as string, y: jwk["y"] as string };
  }
  if (jwk["kty"] === "RSA") {
    const bits = integerBits(decode(jwk, "n", name), "n", name);
    const exponent = decode(jwk, "e", name);
    if (integerBits(exponent, "e", name) < 2 || (exponent.at(-1) ?? 0) % 2 === 0) {
      throw keyError("ERR_KEY_FORMAT", name, '"e" is not an odd number above 1 (RFC 8017 section 3.1)');
    }
    if (bits < minRsaBits) {
      throw keyError(
        "ERR_KEY_UNSUPPORTED",
        name,
        `an RSA modulus of ${bits} bits is too small; use at least ${minRsaBits} (RFC 7518 section 4.3)`,
      );
    }
    return { kty: "RSA", n: jwk["n"] as string, e: jwk["e"] as string };
  }
  throw keyError("ERR_KEY_UNSUPPORTED", name, `kty ${shown(jwk["kty"])} is not supported; use EC or RSA`);
}

/** Returns a string that is the same for two keys only if the keys are equal. */
export function keyIdentity(jwk: PublicJwk): string {
  return jwk.kty === "EC" ? `EC ${jwk.crv} ${jwk.x} ${jwk.y}` : `RSA ${jwk.n} ${jwk.e}`;
}

/** Returns the public members of an Ed25519 key. @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED` */
export function ed25519Members(jwk: Readonly<Record<string, unknown>>, name: string): OkpPublicJwk {
  if (jwk["crv"] !== "Ed25519") {
    throw keyError("ERR_KEY_UNSUPPORTED", name, `curve ${shown(jwk["crv"])} is not supported; use Ed25519`);
  }
  const bytes = decode(jwk, "x", name).length;
  if (bytes !== 32) {
    throw keyError("ERR_KEY_FORMAT", name, `"x" is ${bytes} bytes long, but must be exactly 32 for Ed25519`);
  }
  return { kty: "OKP", crv: "Ed25519", x: jwk["x"] as string };
}

/** Returns the sizes of an RSA key's modulus and exponent, in bits. */
export function rsaBits(jwk: RsaPublicJwk): { readonly modulus: number; readonly exponent: number } {
  const bits = (member: "n" | "e"): number => integerBits(base64url.decode(jwk[member]), member, "RSA key");
  return { modulus: bits("n"), exponent: bits("e") };
}

/**
 * Checks that a coordinate or the private `d` has the full size for its curve.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export function checkSize(
  jwk: Readonly<Record<string, unknown>>,
  member: string,
  crv: EcPublicJwk["crv"],
  name: string,
): void {
  const bytes = decode(jwk, member, name).length;
  const size = coordinateBytes[crv];
  if (bytes !== size) {
    throw keyError(
      "ERR_KEY_FORMAT",
      name,
      `"${member}" is ${bytes} bytes long, but must be exactly ${size} on ${crv}, including leading zeros (RFC 7518 section 6.2)`,
    );
  }
}

function decode(jwk: Readonly<Record<string, unknown>>, member: string, name: string): Uint8Array {
  const text = jwk[member];
  const bad = (rule: string) => keyError("ERR_KEY_FORMAT", name, `"${member}" ${rule}`);
  if (typeof text !== "string" || text === "") throw bad("is missing");
  const bytes = /^[A-Za-z0-9_-]+$/.test(text) && text.length % 4 !== 1 ? base64url.decode(text) : undefined;
  if (bytes === undefined || base64url.encode(bytes) !== text) {
    throw bad("is not unpadded base64url (RFC 7515 section 2)");
  }
  return bytes;
}

function integerBits(bytes: Uint8Array, member: string, name: string): number {
  const first = bytes[0] ?? 0;
  if (first === 0) {
    throw keyError("ERR_KEY_FORMAT", name, `"${member}" has a leading zero octet (RFC 7518 section 2, Base64urlUInt)`);
  }
  return bytes.length * 8 - Math.clz32(first) + 24;
}

/** Truncates a string to 32 characters. For any other value, returns the value's type. */
function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value.slice(0, 32)) : `of type ${typeof value}`;
}
