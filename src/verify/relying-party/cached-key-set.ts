import { FetchError, KeyMaterialError } from "../../base/errors.ts";
import { shownUrl } from "../../base/urls.ts";
import { textHash } from "../../keys/crypto/text-sha256.ts";
import type { VerificationKeys } from "../../keys/jwk/verification-keys.ts";
import type { CachingHeaders } from "../http-cache/freshness.ts";
import type { Read, Stored } from "../http-cache/stored-response.ts";

/**
 * A stored response as plain data that can be saved as JSON. `state()` returns it and the `state` option accepts it, so
 * that a cold start on an edge or serverless platform does not need a request.
 */
export interface KeySetState {
  /** The key set's `issuer` option. */
  readonly issuer: string | undefined;
  /** URL that the set was fetched from. */
  readonly jwksUri: string;
  /** The JWK Set, as it was received. */
  readonly body: string;
  /** ETag for the next conditional request. */
  readonly etag: string | undefined;
  /** Header fields that determine its freshness. */
  readonly headers: CachingHeaders;
  /** Time of the request, in epoch milliseconds. */
  readonly requestedAt: number;
}

/** The keys in a stored JWK Set. */
export interface KeptKeys {
  readonly keys: VerificationKeys;
  /**
   * Hash of each kid and its key, keyed by kid. Hashes are used because earlier keys are remembered, and a server can
   * send kids and keys of any length.
   */
  readonly hashes: ReadonlyMap<string, string>;
}

/** A stored JWK Set. */
export type StoredSet = Stored<KeptKeys>;

/** Reads a JWK Set. @throws KeyMaterialError `ERR_KEY_FORMAT` */
export type ReadKeys = (jwkSet: unknown) => VerificationKeys | Promise<VerificationKeys>;

/**
 * Returns a function that reads the keys in a response. It throws FetchError `ERR_FETCH_BODY` if `readKeys` rejects the
 * body.
 */
export function setReader(readKeys: ReadKeys): Read<KeptKeys> {
  return async ({ url, body }) => {
    try {
      const keys = await readKeys(JSON.parse(body));
      const hashing = [...keys.identities].map(async ([kid, key]) => [kid, await textHash(`${key} ${kid}`)] as const);
      return { keys, hashes: new Map(await Promise.all(hashing)) };
    } catch (cause) {
      const why = cause instanceof KeyMaterialError ? cause.message : "the body is not a JWK Set";
      throw new FetchError("ERR_FETCH_BODY", `${shownUrl(url)}: ${why}`, { cause });
    }
  };
}

/**
 * Wraps a reader so that it rejects a set without a usable key. A set like this cannot verify any of the provider's
 * tokens, so it more likely indicates a fault than the removal of all keys.
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
 * Returns the added keys' hashes, keyed by kid, and the removed keys' kids and hashes. A kid whose key was replaced is
 * both added and removed.
 */
export function difference(before: KeptKeys | undefined, after: KeptKeys) {
  const old = before?.hashes ?? new Map<string, string>();
  const removed = [...old].filter(([kid, hash]) => after.hashes.get(kid) !== hash);
  return {
    added: new Map([...after.hashes].filter(([kid, hash]) => old.get(kid) !== hash)),
    removed: removed.map(([kid]) => kid),
    removedHashes: removed.map(([, hash]) => hash),
  };
}
