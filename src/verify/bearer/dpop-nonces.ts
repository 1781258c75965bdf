import type { CryptoKey } from "jose";
import { toBase64url } from "#crypto";
import type { Clock } from "../../base/clock.ts";

/**
 * Time for which a nonce is current, in milliseconds. After that, it is still accepted for another period of the same
 * length.
 */
const periodMs = 150_000;
const encoder = new TextEncoder();

/** Creates and checks nonces for proofs. */
export interface Nonces {
  current(): Promise<string>;
  accepts(nonce: unknown): Promise<boolean>;
}

/**
 * Creates nonces by computing a MAC of the time. Nothing is stored, and replicas with the same secret accept each
 * other's nonces. All clients get the same nonce, because a nonce only proves that the proof is newer than the nonce.
 *
 * @see RFC 9449 section 9
 */
export function createNonces(secret: string, clock: Pick<Clock, "now">): Nonces {
  let key: Promise<CryptoKey> | undefined;
  const nonces = new Map<number, string>();

  async function nonceOf(period: number): Promise<string> {
    const known = nonces.get(period);
    if (known !== undefined) return known;
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    key ??= crypto.subtle.importKey("raw", encoder.encode(secret), algorithm, false, ["sign"]);
    const mac = await crypto.subtle.sign("HMAC", await key, encoder.encode(`jwksd DPoP nonce ${period}`));
    const nonce = toBase64url(new Uint8Array(mac));
    nonces.set(period, nonce);
    for (const [oldest] of nonces) if (nonces.size > 2) nonces.delete(oldest);
    return nonce;
  }
  const period = (): number => Math.floor(clock.now() / periodMs);

  return {
    current: () => nonceOf(period()),
    accepts: async (nonce) => nonce === (await nonceOf(period())) || nonce === (await nonceOf(period() - 1)),
  };
}
