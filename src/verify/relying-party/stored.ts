import { ageSeconds, httpDate } from "../../base/cache-control.ts";
import { FetchError, KeyMaterialError } from "../../base/errors.ts";
import { object } from "../../base/options.ts";
import { shownUrl } from "../../base/urls.ts";
import { textHash } from "../../keys/crypto/text-hash.ts";
import type { VerificationKeys } from "../../keys/jwk/verification-keys.ts";
import { type CachingHeaders, clockToleranceMs, dateAgeMs } from "./freshness.ts";

/**
 * A stored response as plain data, for JSON. `state()` returns it and the `state` option accepts it, so that a cold start on an edge or
 * serverless platform needs no request.
 */
export interface KeySetState {
  /** The key set's `issuer` option. */
  readonly issuer: string | undefined;
  /** URL from which the set was fetched. */
  readonly jwksUri: string;
  /** JWK Set as it was received. */
  readonly body: string;
  /** ETag for the next conditional request. */
  readonly etag: string | undefined;
  /** Header fields that its freshness depends on. */
  readonly headers: CachingHeaders;
  /** Time of the request, in epoch milliseconds. */
  readonly requestedAt: number;
}

/** A stored response and its keys. */
export interface StoredSet extends KeySetState {
  readonly keys: VerificationKeys;
  /** Hash of each kid and its key, by kid. Hashed because keys of earlier sets are remembered, and a server can send kids and keys of any length. */
  readonly hashes: ReadonlyMap<string, string>;
}

/** Reports whether a value from outside has the form of a state. */
export function isKeySetState(state: KeySetState | null): state is KeySetState {
  const headers: unknown = state?.headers;
  return (
    typeof state?.body === "string" &&
    Number.isFinite(state.requestedAt) &&
    object.holds(headers) &&
    Object.values(headers).every((value) => value === undefined || typeof value === "string") &&
    // An ETag that no header can contain would fail every conditional request.
    (state.etag === undefined || (typeof state.etag === "string" && /^[ -~\u0080-\u00ff]*$/.test(state.etag)))
  );
}

/** Reads a JWK Set. @throws KeyMaterialError `ERR_KEY_FORMAT` */
export type ReadKeys = (jwkSet: unknown) => VerificationKeys | Promise<VerificationKeys>;

/** Reads the keys of a stored response. @throws FetchError `ERR_FETCH_BODY` if its body is not a JWK Set, or one that `readKeys` refuses */
export async function storedSet(state: KeySetState, readKeys: ReadKeys): Promise<StoredSet> {
  try {
    const keys = await readKeys(JSON.parse(state.body));
    const hashing = [...keys.identities].map(async ([kid, key]) => [kid, await textHash(`${key} ${kid}`)] as const);
    return { ...state, keys, hashes: new Map(await Promise.all(hashing)) };
  } catch (cause) {
    const why = cause instanceof KeyMaterialError ? cause.message : "the body is not a JWK Set";
    throw new FetchError("ERR_FETCH_BODY", `${shownUrl(state.jwksUri)}: ${why}`, { cause });
  }
}

/**
 * Refuses a set without a usable key. Its provider could sign no token that this set verifies, so the set is a fault of the provider, and not
 * the end of all its keys.
 */
export function withKeys(read: ReadKeys): ReadKeys {
  return async (jwkSet) => {
    const keys = await read(jwkSet);
    const [first] = keys.skipped;
    if (keys.identities.size > 0) return keys;
    const why = first === undefined ? "" : `: ${first.reason}`;
    throw new KeyMaterialError("ERR_KEY_FORMAT", `the JWK Set has no usable key${why}`);
  };
}

/**
 * Reports whether a set differs from the stored one and left the origin before it, so that a cache on the way must have returned it. A `Date`
 * counts only if it is too old for a difference of clocks, because replicas of a provider have one clock each.
 *
 * @see RFC 9111 section 4: of two responses, the one with the newer `Date` is used
 */
export function isOutdated(next: StoredSet, stored: StoredSet | undefined): boolean {
  if (stored === undefined || next.keys === stored.keys || next.jwksUri !== stored.jwksUri) return false;
  const isOldByDate = (dateOf(next) ?? NaN) < (dateOf(stored) ?? NaN);
  return (
    leftOrigin(next) < leftOrigin(stored) ||
    (isOldByDate && dateAgeMs(next.headers, next.requestedAt) > clockToleranceMs)
  );
}

const dateOf = ({ headers }: StoredSet): number | undefined => httpDate(headers.date);

/** Returns when the origin sent the response, by the `Age` that caches report, in epoch milliseconds. */
function leftOrigin({ requestedAt, headers }: StoredSet): number {
  return requestedAt - ageSeconds(headers.age) * 1000;
}

/**
 * Returns the hashes of the added keys by kid, and the kids and hashes of the removed ones. A kid whose key was replaced is both added and
 * removed.
 */
export function difference(before: StoredSet | undefined, after: StoredSet) {
  const old = before?.hashes ?? new Map<string, string>();
  const removed = [...old].filter(([kid, hash]) => after.hashes.get(kid) !== hash);
  return {
    added: new Map([...after.hashes].filter(([kid, hash]) => old.get(kid) !== hash)),
    removed: removed.map(([kid]) => kid),
    removedHashes: removed.map(([, hash]) => hash),
  };
}
