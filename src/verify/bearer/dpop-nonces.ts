import { toBase64url } from "#crypto";
import type { Clock } from "../../base/clock.ts";

/** How long one nonce is given; it is accepted for as long again. */
const periodMs = 150_000;
const encoder = new TextEncoder();

/**
 * Nonces for proofs: a MAC of the time. Nothing has to be stored, and replicas with one secret accept the nonces of each other. All clients get
 * the same nonce, because a nonce only proves that the proof is newer than the nonce.
 *
 * @see RFC 9449 section 9
 */
export function createNonces(secret: string, clock: Pick<Clock, "now">) {
  let key: Promise<Parameters<typeof crypto.subtle.sign>[1]> | undefined;
  const made = new Map<number, string>();

  async function nonceOf(period: number): Promise<string> {
    const known = made.get(period);
    if (known !== undefined) return known;
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    key ??= crypto.subtle.importKey("raw", encoder.encode(secret), algorithm, false, ["sign"]);
    const mac = await crypto.subtle.sign("HMAC", await key, encoder.encode(`jwksd DPoP nonce ${period}`));
    const nonce = toBase64url(new Uint8Array(mac));
    made.set(period, nonce);
    if (made.size > 2) made.delete(made.keys().next().value as number);
    return nonce;
  }
  const period = (): number => Math.floor(clock.now() / periodMs);

  return {
    current: () => nonceOf(period()),
    accepts: async (nonce: unknown) => nonce === (await nonceOf(period())) || nonce === (await nonceOf(period() - 1)),
  };
}
