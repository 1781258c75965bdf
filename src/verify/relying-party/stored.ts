import { ageSeconds, httpDate } from "../../base/cache-control.ts";
import { FetchError, KeyMaterialError } from "../../base/errors.ts";
import { textHash } from "../../keys/crypto/text-hash.ts";
import type { VerificationKeys } from "../../keys/jwk/verification-keys.ts";
import { type CachingHeaders, clockToleranceMs, dateAgeMs } from "./freshness.ts";
import { shownUrl } from "../../base/urls.ts";

/**
 * A stored response as plain data, for JSON: `state()` returns it and the option `state` takes it, so that a cold start on an edge or
 * serverless platform needs no request.
 */
export interface KeySetState {
  /** The option `issuer` of the key set. */
  readonly issuer: string | undefined;
  /** Where the set was fetched. */
  readonly jwksUri: string;
  /** The JWK Set as it was received. */
  readonly body: string;
  /** Its ETag, for the next conditional request. */
  readonly etag: string | undefined;
  /** The header fields on which its freshness depends. */
  readonly headers: CachingHeaders;
  /** When it was requested, in epoch milliseconds. */
  readonly requestedAt: number;
}

/** A stored response and its keys. */
export interface StoredSet extends KeySetState {
  readonly keys: VerificationKeys;
  /** A hash of each kid and its key, by kid: keys of earlier sets are remembered, and their servers choose how long they are. */
  readonly hashes: ReadonlyMap<string, string>;
}

/** Whether a value from outside has the form of a state. */
export function isKeySetState(state: KeySetState | null): state is KeySetState {
  const headers: unknown = state?.headers;
  return (
    typeof state?.body === "string" &&
    Number.isFinite(state.requestedAt) &&
    typeof headers === "object" &&
    headers !== null &&
    Object.values(headers).every((value) => value === undefined || typeof value === "string") &&
    // An ETag that no header can hold would fail every conditional request.
    (state.etag === undefined || (typeof state.etag === "string" && /^[ -~\u0080-\u00ff]*$/.test(state.etag)))
  );
}

/** Reads a JWK Set. @throws KeyMaterialError `ERR_KEY_FORMAT` */
export type ReadKeys = (jwkSet: unknown) => VerificationKeys | Promise<VerificationKeys>;

/** Reads the keys of a stored response. @throws FetchError `ERR_FETCH_BODY` when its body is no JWK Set, or one that `readKeys` refuses */
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
 * Refuses a set in which no key can be used. Its provider could sign no token that this set verifies, so it is a fault of the provider, and
 * not the end of all its keys.
 */
export function withKeys(read: ReadKeys): ReadKeys {
  return async (jwkSet) => {
    const keys = await read(jwkSet);
    const [first] = keys.skipped;
    if (keys.identities.size > 0) return keys;
    const why = first === undefined ? "" : `: ${first.reason}`;
    throw new KeyMaterialError("ERR_KEY_FORMAT", `the JWK Set has no key that can be used${why}`);
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

/** Kids that came and went between two sets. A kid whose key was replaced is in both lists. */
export function difference(before: StoredSet | undefined, after: StoredSet) {
  const old = before?.hashes ?? new Map<string, string>();
  const added = [...after.hashes.keys()].filter((kid) => old.get(kid) !== after.hashes.get(kid));
  const removed = [...old.keys()].filter((kid) => after.hashes.get(kid) !== old.get(kid));
  return { added, removed };
}
