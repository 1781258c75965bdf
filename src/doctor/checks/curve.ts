import { integer } from "../base64url.ts";
import type { Key } from "../decode-key.ts";
import { pointProblem } from "../ed25519.ts";
import { type Note, note } from "../finding.ts";
import { counted, quotedName } from "../value-text.ts";

interface Curve {
  readonly bytes: number;
  /** Prime of the field over which the curve y² = x³ - 3x + b is defined. */
  readonly p: bigint;
  readonly b: bigint;
}

/** @see NIST SP 800-186 section 3.2.1 */
const curves: Readonly<Record<string, Curve>> = {
  "P-256": {
    bytes: 32,
    p: 2n ** 256n - 2n ** 224n + 2n ** 192n + 2n ** 96n - 1n,
    b: 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn,
  },
  "P-384": {
    bytes: 48,
    p: 2n ** 384n - 2n ** 128n - 2n ** 96n + 2n ** 32n - 1n,
    b: 0xb3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aefn,
  },
  "P-521": {
    bytes: 66,
    p: 2n ** 521n - 1n,
    b: 0x51953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00n,
  },
};

const okpBytes: Readonly<Record<string, number>> = { Ed25519: 32 };

/** Checks an EC key's curve, coordinates and point. */
export function checkEc({ jwk, name, values }: Key): Note[] {
  const { crv } = jwk;
  if (jwk["kty"] !== "EC" || typeof crv !== "string") return [];
  const curve = Object.hasOwn(curves, crv) ? curves[crv] : undefined;
  if (curve === undefined) return [note("JWKS_EC_CURVE_UNKNOWN", `${name} is on ${quotedName(crv)}`)];
  const notes: Note[] = [];
  for (const member of ["x", "y"]) {
    const bytes = values[member]?.bytes.length;
    if (bytes === undefined || bytes === curve.bytes) continue;
    const seen = `"${member}" in ${name} has ${counted(bytes, "byte")}; ${crv} needs ${curve.bytes}`;
    notes.push(note("JWKS_EC_COORDINATE_LENGTH", seen));
  }
  const [x, y] = [values["x"]?.bytes, values["y"]?.bytes];
  if (notes.length === 0 && x !== undefined && y !== undefined && !isOn(curve, integer(x), integer(y))) {
    notes.push(note("JWKS_EC_OFF_CURVE", `${name} is not on ${crv}`));
  }
  return notes;
}

function isOn({ p, b }: Curve, x: bigint, y: bigint): boolean {
  return x < p && y < p && (y * y - (x * x * x - 3n * x + b)) % p === 0n;
}

/** Checks an OKP key's curve, size and point. */
export function checkOkp({ jwk, name, values }: Key): Note[] {
  const { crv } = jwk;
  if (jwk["kty"] !== "OKP" || typeof crv !== "string") return [];
  const size = Object.hasOwn(okpBytes, crv) ? okpBytes[crv] : undefined;
  if (size === undefined) return [note("JWKS_OKP_CURVE", `${name} is on ${quotedName(crv)}`)];
  const x = values["x"]?.bytes;
  if (x === undefined) return [];
  if (x.length !== size) {
    return [note("JWKS_OKP_LENGTH", `"x" in ${name} has ${counted(x.length, "byte")}; ${crv} needs ${size}`)];
  }
  const problem = pointProblem(x);
  if (problem === undefined) return [];
  return [note(problem === "off-curve" ? "JWKS_OKP_OFF_CURVE" : "JWKS_OKP_SMALL_ORDER", name)];
}
