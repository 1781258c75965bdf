import { FetchError } from "../../base/errors.ts";
import type { VerificationKeys } from "../../keys/jwk/verification-keys.ts";
import { type CachingHeaders, ageSeconds } from "./freshness.ts";
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

/** Reads the keys of a stored response. @throws FetchError `ERR_FETCH_BODY` when its body is no JWK Set */
export async function storedSet(state: KeySetState, readKeys: ReadKeys): Promise<StoredSet> {
  try {
    return { ...state, keys: await readKeys(JSON.parse(state.body)) };
  } catch (cause) {
    throw new FetchError("ERR_FETCH_BODY", `${shownUrl(state.jwksUri)}: the body is not a JWK Set`, { cause });
  }
}

/** Whether a set differs from the stored one and left the origin before it, so that a cache on the way must have answered. */
export function isOutdated(next: StoredSet, stored: StoredSet | undefined): boolean {
  const isOther = next.keys !== stored?.keys && next.jwksUri === stored?.jwksUri;
  return isOther && leftOrigin(next) < leftOrigin(stored);
}

/** When the origin sent the response, in epoch milliseconds. */
function leftOrigin({ requestedAt, headers }: StoredSet): number {
  return requestedAt - ageSeconds(headers) * 1000;
}

/** Kids that came and went between two sets. A kid whose key was replaced is in both lists. */
export function difference(before: VerificationKeys | undefined, after: VerificationKeys) {
  const old = before?.identities ?? new Map<string, string>();
  const added = [...after.identities].filter(([kid, identity]) => old.get(kid) !== identity).map(([kid]) => kid);
  const removed = [...old].filter(([kid, identity]) => after.identities.get(kid) !== identity).map(([kid]) => kid);
  return { added, removed };
}
