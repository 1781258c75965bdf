import type { Bytes } from "../../base/bytes.ts";
import { SignerError } from "../../base/errors.ts";

/**
 * Converts an ECDSA signature to DER. The input is r, then s, each at the full size for the curve. OpenSSL checks the
 * range of r and s.
 *
 * @see RFC 3279 section 2.2.3; ITU-T X.690 section 8.3; RFC 7518 section 3.4
 */
export function derFromRaw(signature: Uint8Array): Bytes {
  const half = signature.length / 2;
  // A SEQUENCE has at most three header bytes, and so does each INTEGER, including the zero that keeps it positive.
  const der = new Uint8Array(9 + signature.length);
  let at = 3;
  for (let end = half; end <= 2 * half; end += half) {
    let start = end - half;
    while (start < end - 1 && signature[start] === 0) start += 1;
    const zero = Number((signature[start] ?? 0) > 127);
    der[at] = 0x02;
    der[at + 1] = zero + end - start;
    at += 2 + zero;
    der.set(signature.subarray(start, end), at);
    at += end - start;
  }
  const length = at - 3;
  const begin = length > 127 ? 0 : 1;
  if (begin === 0) der[1] = 0x81;
  der[begin] = 0x30;
  der[2] = length;
  return der.subarray(begin, at);
}

/**
 * Converts a P-256 ECDSA signature from DER to the 64 bytes that ES256 uses: r, then s, each padded on the left.
 * Accepts only the shortest encoding, with nothing after it. The range of r and s is checked later, when the signature
 * is verified.
 *
 * @param name the key's name in messages
 * @throws SignerError `ERR_SIGNER_BAD_SIGNATURE`
 * @see RFC 3279 section 2.2.3; ITU-T X.690 sections 8.3 and 10.1; RFC 7518 section 3.4
 */
export function es256FromDer(der: Uint8Array, name: string): Bytes {
  const signature = new Uint8Array(64);
  let at = 2;
  for (let end = 32; end <= 64; end += 32) {
    const next = at + 2 + (der[at + 1] ?? 0);
    // Skips the zero that keeps 32 bytes positive.
    for (let from = Math.max(at + 2, next - 32); from < next; from += 1) signature[end - next + from] = der[from] ?? 0;
    at = next;
  }
  // Only valid DER yields the same bytes when it is encoded again.
  const again = derFromRaw(signature);
  let same = 0;
  while (same < der.length && der[same] === again[same]) same += 1;
  if (same === der.length && same === again.length) return signature;
  throw new SignerError("ERR_SIGNER_BAD_SIGNATURE", `${name}: the signature is not an ECDSA-Sig-Value in DER`);
}
