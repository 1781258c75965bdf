import type { CryptoKey } from "jose";
import type { Clock } from "../base/clock.ts";
import { KeyMaterialError, keyError } from "../base/errors.ts";
import { type Jwk, keyIdentity } from "../keys/jwk/public.ts";
import { type Document, makeDocument } from "./document.ts";

/** A key of a set that was checked. Nothing here can sign. */
export interface JwkSetEntry {
  readonly jwk: Jwk;
  /** The same key, imported. */
  readonly publicKey: CryptoKey;
  /** When it is no longer published, in epoch milliseconds; `Infinity` for never. */
  readonly notAfter: number;
}

/** What is served of a set for a time. */
export interface JwkSetDocument extends Document {
  readonly keys: readonly Jwk[];
  /** When the next document replaces this one, in epoch milliseconds; `Infinity` for the last one. */
  readonly until: number;
}

/** A checked JWK Set as a value: public keys, frozen, and the bytes that are served. @see RFC 7517 section 5 */
export interface JwkSet {
  /** Signing keys, the active one first, then encryption keys; each in keyset order. */
  readonly entries: readonly JwkSetEntry[];
  /** In order of time: one, and one more for each `notAfter`. */
  readonly documents: readonly JwkSetDocument[];
}

/**
 * Makes a set of checked keys.
 *
 * @throws KeyMaterialError `ERR_KID_DUPLICATE`, `ERR_KEY_DUPLICATE`, `ERR_KEY_IN_BOTH_KEYSETS`
 */
export async function jwkSetOf(keys: readonly JwkSetEntry[]): Promise<JwkSet> {
  checkUnique(keys);
  const entries = Object.freeze([...entriesFor("sig", keys), ...entriesFor("enc", keys)]);
  const ends = [...new Set([...entries.map(({ notAfter }) => notAfter), Infinity])].sort((a, b) => a - b);
  const documents = ends.map(async (until): Promise<JwkSetDocument> => {
    const keys = entries.filter(({ notAfter }) => notAfter >= until).map(({ jwk }) => jwk);
    return Object.freeze({ keys: Object.freeze(keys), ...(await makeDocument({ keys })), until });
  });
  return Object.freeze({ entries, documents: Object.freeze(await Promise.all(documents)) });
}

export const entriesFor = (use: Jwk["use"], entries: readonly JwkSetEntry[]): readonly JwkSetEntry[] =>
  entries.filter(({ jwk }) => jwk.use === use);

/** The document of a moment. A clock that is set back finds the earlier one again. */
export function documentAt<Timed extends { readonly until: number }>(
  documents: readonly Timed[],
  clock: Pick<Clock, "now">,
): Timed | undefined {
  if (documents.length === 1) return documents[0];
  const now = clock.now();
  return documents.find(({ until }) => now < until);
}

/** One kid names one key, a key has one kid, and it is for one use. */
function checkUnique(entries: readonly JwkSetEntry[]): void {
  const kids = new Set<string>();
  const keys = new Map<string, Jwk>();
  for (const { jwk } of entries) {
    const kid = JSON.stringify(jwk.kid);
    const twin = keys.get(keyIdentity(jwk));
    if (twin !== undefined && twin.use !== jwk.use) {
      const kidsOf = twin.kid === jwk.kid ? `kid ${kid}` : `kid ${JSON.stringify(twin.kid)} and kid ${kid}`;
      throw keyError("ERR_KEY_IN_BOTH_KEYSETS", kidsOf, "one key both to sign and to encrypt; make a second one");
    }
    if (kids.has(jwk.kid))
      throw new KeyMaterialError("ERR_KID_DUPLICATE", `kid ${kid} is on two entries; every kid names one key`);
    kids.add(jwk.kid);
    if (twin !== undefined) {
      throw new KeyMaterialError(
        "ERR_KEY_DUPLICATE",
        `kid ${JSON.stringify(twin.kid)} and kid ${kid} are one key; a key has one kid`,
      );
    }
    keys.set(keyIdentity(jwk), jwk);
  }
}
