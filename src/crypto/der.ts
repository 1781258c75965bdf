import type { Bytes } from "../bytes.ts";
import { SignerError } from "../errors.ts";

// The order of the group of P-256; r and s are below it. @see SEC 2 section 2.4.2
const order = Uint8Array.from(
  "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551".match(/../g) ?? [],
  (byte) => Number.parseInt(byte, 16),
);

/**
 * Turns an ECDSA signature from r then s, each of the full size of its curve, into DER. Whether they are in range is left to OpenSSL.
 *
 * @see RFC 3279 section 2.2.3; ITU-T X.690 section 8.3; RFC 7518 section 3.4
 */
export function derFromRaw(signature: Uint8Array): Bytes {
  const half = signature.length / 2;
  // A SEQUENCE has three bytes in front at most; so has each INTEGER, with the zero that keeps it positive.
  const der = new Uint8Array(9 + signature.length);
  let at = 3;
  for (const end of [half, 2 * half]) {
    let start = end - half;
    while (start < end - 1 && signature[start] === 0) start += 1;
    const zero = Number((signature[start] ?? 0) > 127);
    der.set([0x02, zero + end - start], at);
    at += 2 + zero;
    der.set(signature.subarray(start, end), at);
    at += end - start;
  }
  const length = at - 3;
  const header = length > 127 ? [0x30, 0x81, length] : [0x30, length];
  der.set(header, 3 - header.length);
  return der.subarray(3 - header.length, at);
}

/**
 * Turns an ECDSA signature on P-256 from DER, as key services give it, into the 64 bytes of ES256: r then s, each padded on the
 * left. Takes DER alone: the one shortest encoding, nothing after it, and integers from 1 to below the order of the curve.
 *
 * @param name how messages name the key
 * @throws SignerError `ERR_SIGNER_BAD_SIGNATURE`
 * @see RFC 3279 section 2.2.3; ITU-T X.690 sections 8.3 and 10.1; RFC 7518 section 3.4
 */
export function es256FromDer(der: Uint8Array, name: string): Bytes {
  const bad = (why: string): SignerError =>
    new SignerError("ERR_SIGNER_BAD_SIGNATURE", `${name}: the signature is not ECDSA-Sig-Value in DER: ${why}`);
  const signature = new Uint8Array(64);
  let at = 0;

  function header(tag: number, what: string): number {
    if (der[at] !== tag) throw bad(`no ${what} at byte ${at}`);
    const length = der[at + 1];
    at += 2;
    // Two integers of at most 33 bytes never need the long form of a length, and DER forbids it for them.
    if (length === undefined || length > 127) throw bad(`the ${what} has no length in the short form`);
    return length;
  }

  function integer(offset: number): void {
    const length = header(0x02, "INTEGER");
    const bytes = der.subarray(at, at + length);
    at += length;
    const [first, second = 0] = bytes;
    if (first === undefined || bytes.length !== length) throw bad("it ends in an INTEGER");
    if (first > 127) throw bad("an INTEGER is negative");
    if (first === 0 && second < 128 && length > 1) throw bad("an INTEGER is longer than it needs to be");
    const magnitude = first === 0 ? bytes.subarray(1) : bytes;
    if (magnitude.length === 0 || magnitude.length > 32) throw bad("an INTEGER is out of range");
    signature.set(magnitude, offset + 32 - magnitude.length);
    if (!isBelowOrder(signature.subarray(offset, offset + 32))) throw bad("an INTEGER is out of range");
  }

  const length = header(0x30, "SEQUENCE");
  if (at + length !== der.length) throw bad("the length of the SEQUENCE is not that of the rest");
  integer(0);
  integer(32);
  if (at !== der.length) throw bad("more follows than two INTEGERs");
  return signature;
}

function isBelowOrder(value: Uint8Array): boolean {
  const at = order.findIndex((byte, index) => byte !== value[index]);
  return at !== -1 && (value[at] ?? 0) < (order[at] ?? 0);
}
