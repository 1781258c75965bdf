import { KeyMaterialError } from "../errors.ts";
import type { EcPublicJwk } from "../jwk/public.ts";
import { p256Params } from "./constants.ts";
import type { FoundKey } from "./messages.ts";

/**
 * The public half of a key of a token, from its CKA_EC_PARAMS and CKA_EC_POINT. The point is the octet string that the standard asks
 * for, or the plain point that some modules give.
 *
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`
 * @see PKCS#11 3.0, section 2.3.3; RFC 5480 section 2.2
 */
export function publicKeyOf({ isEc, params, point }: FoundKey, name: string): EcPublicJwk {
  if (!isEc) {
    throw new KeyMaterialError("ERR_KEY_NOT_P256", `${name}: a signing key is an ECDSA key on P-256, this one is not`);
  }
  if (params === undefined || point === undefined) {
    throw new KeyMaterialError("ERR_KEY_FORMAT", `${name}: the token holds no public key with the same id beside it`);
  }
  if (!isP256(params)) {
    throw new KeyMaterialError("ERR_KEY_NOT_P256", `${name}: a signing key is on P-256, this one is on another curve`);
  }
  const plain = point.length === 67 && point[0] === 0x04 && point[1] === 65 ? point.subarray(2) : point;
  if (plain.length !== 65 || plain[0] !== 0x04) {
    throw new KeyMaterialError("ERR_KEY_FORMAT", `${name}: CKA_EC_POINT is not an uncompressed point on P-256`);
  }
  const text = (from: number): string => Buffer.from(plain.subarray(from, from + 32)).toString("base64url");
  return Object.freeze({ kty: "EC", crv: "P-256", x: text(1), y: text(33) });
}

/** By the identifier of the curve, or by its name as a printable string. */
function isP256(params: Uint8Array): boolean {
  if (Buffer.compare(params, p256Params) === 0) return true;
  const isName = params[0] === 0x13 && params[1] === params.length - 2;
  return isName && /^(secp256r1|prime256v1|P-256)$/.test(Buffer.from(params.subarray(2)).toString("latin1"));
}
