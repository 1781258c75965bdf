import type { CryptoKey } from "jose";
import type { Clock } from "../base/clock.ts";
import { KeyMaterialError, keyError } from "../base/errors.ts";
import { type PublishedJwk, keyIdentity } from "../keys/jwk/public-members.ts";
import { type Document, makeDocument } from "./document.ts";

/** A key in a checked set. It has no private members and cannot sign. */
export interface JwkSetEntry {
  readonly jwk: PublishedJwk;
  /** Imported public key. */
  readonly publicKey: CryptoKey;
  /** Time at which the key stops being published, in epoch milliseconds. `Infinity` means never. */
  readonly notAfter: number;
}

/** A set's document that is served until a given time. */
export interface JwkSetDocument extends Document {
  readonly keys: readonly PublishedJwk[];
  /** Time at which the next document replaces this one, in epoch milliseconds. `Infinity` for the last document. */
  readonly until: number;
}

/** An immutable, checked JWK Set: the public keys and the bytes to serve. @see RFC 7517 section 5 */
export interface JwkSet {
  /** Signing keys, starting with the active one, then encryption keys. Each group is in the order of its keyset. */
  readonly entries: readonly JwkSetEntry[];
  /** Documents in chronological order: one, plus one more for each `notAfter`. */
  readonly documents: readonly JwkSetDocument[];
}

/**
 * Creates a set from checked keys.
 *
 * @throws KeyMaterialError `ERR_KID_DUPLICATE`, `ERR_KEY_DUPLICATE`
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

export const entriesFor = (use: PublishedJwk["use"], entries: readonly JwkSetEntry[]): readonly JwkSetEntry[] =>
  entries.filter(({ jwk }) => jwk.use === use);

/** Returns the document for the current time. If the clock is set back, returns the earlier document again. */
export function documentAt<Timed extends { readonly until: number }>(
  documents: readonly Timed[],
  clock: Pick<Clock, "now">,
): Timed | undefined {
  if (documents.length === 1) return documents[0];
  const now = clock.now();
  return documents.find(({ until }) => now < until);
}

/** Checks that no kid identifies two keys, and that no key has two kids or two uses. */
function checkUnique(entries: readonly JwkSetEntry[]): void {
  const kids = new Set<string>();
  const keys = new Map<string, PublishedJwk>();
  for (const { jwk } of entries) {
    const kid = JSON.stringify(jwk.kid);
    const twin = keys.get(keyIdentity(jwk));
    if (twin !== undefined && (twin.use !== jwk.use || twin.kid !== jwk.kid)) {
      const rule =
        twin.use === jwk.use
          ? "one key has two kids; remove one of the entries"
          : "one key is used both to sign and to encrypt; generate a second key";
      const kidsOf = twin.kid === jwk.kid ? `kid ${kid}` : `kid ${JSON.stringify(twin.kid)} and kid ${kid}`;
      throw keyError("ERR_KEY_DUPLICATE", kidsOf, rule);
    }
    if (kids.has(jwk.kid))
      throw new KeyMaterialError(
        "ERR_KID_DUPLICATE",
        `two entries have the kid ${kid}; a kid must identify only one key`,
      );
    kids.add(jwk.kid);
    keys.set(keyIdentity(jwk), jwk);
  }
}
