import { createECDH, generateKeyPairSync, randomBytes } from "node:crypto";

/** Group order of P-256. @see SEC 2 section 2.4.2 */
export const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/** A key as in a key service: it signs digests, which `node:crypto` cannot. */
export interface ServiceKey {
  readonly publicPem: string;
  readonly publicDer: Buffer;
  readonly publicJwk: { readonly kty: string; readonly crv: string; readonly x: string; readonly y: string };
  readonly privateScalar: string;
  /** Signs a digest of 32 bytes. @returns r, then s */
  sign(digest: Uint8Array): Buffer;
  /** Half of its signatures that begins with a zero. Without this, one in 256 does by chance. */
  zeroHalf?: Half | undefined;
}

export type Half = "r" | "s";

const toInt = (bytes: Uint8Array): bigint => BigInt(`0x${Buffer.from(bytes).toString("hex")}`);
const toBytes = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(64, "0"), "hex");

function inverse(value: bigint): bigint {
  let [a, b, x, y] = [value, order, 1n, 0n];
  while (b !== 0n) {
    const quotient = a / b;
    [a, b] = [b, a - quotient * b];
    [x, y] = [y, x - quotient * y];
  }
  return ((x % order) + order) % order;
}

/** Signs with ECDSA by its definition; ECDH does the only slow step, the multiplication of a point. @see FIPS 186-5 section 6.4.1 */
function signDigest(digest: Uint8Array, scalar: bigint, zeroHalf: Half | undefined): Buffer {
  for (;;) {
    const nonce = randomBytes(32);
    const k = toInt(nonce);
    if (k === 0n || k >= order) continue;
    const ecdh = createECDH("prime256v1");
    ecdh.setPrivateKey(nonce);
    const r = toInt(ecdh.getPublicKey().subarray(1, 33)) % order;
    if (zeroHalf === "r" && r >= 2n ** 248n) continue;
    const s = (inverse(k) * (toInt(digest) + r * scalar)) % order;
    if (zeroHalf === "s" && s >= 2n ** 248n) continue;
    if (r !== 0n && s !== 0n) return Buffer.concat([toBytes(r), toBytes(s)]);
  }
}

export function serviceKey(namedCurve = "P-256"): ServiceKey {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve });
  const { d = "" } = namedCurve === "secp256k1" ? {} : privateKey.export({ format: "jwk" });
  const scalar = d === "" ? 0n : toInt(Buffer.from(d, "base64url"));
  const key: ServiceKey = {
    publicPem: publicKey.export({ type: "spki", format: "pem" }).toString(),
    publicDer: publicKey.export({ type: "spki", format: "der" }),
    publicJwk: publicKey.export({ format: "jwk" }) as ServiceKey["publicJwk"],
    privateScalar: d,
    sign: (digest) => signDigest(digest, scalar, key.zeroHalf),
  };
  return key;
}

/** @see ITU-T X.690 section 8.3 */
function derInteger(value: Uint8Array): number[] {
  const first = value.findIndex((byte) => byte !== 0);
  const bytes = [...value.subarray(first === -1 ? value.length - 1 : first)];
  if ((bytes[0] ?? 0) > 127) bytes.unshift(0);
  return [2, bytes.length, ...bytes];
}

/** Encodes r and s as ECDSA-Sig-Value in DER. @see RFC 3279 section 2.2.3 */
export function derOf(signature: Uint8Array): Buffer {
  const body = [...derInteger(signature.subarray(0, 32)), ...derInteger(signature.subarray(32))];
  return Buffer.from([0x30, body.length, ...body]);
}
