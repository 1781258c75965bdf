import { FetchError } from "../errors.ts";
import type { VerificationKeys } from "../jwk/verification-keys.ts";
import { type CachingHeaders, ageSeconds } from "./freshness.ts";
import { shownUrl } from "./urls.ts";

/**
 * A stored response, as plain data that survives `JSON.stringify`: what `state()` gives and the option `state` takes, so that a
 * cold start on an edge or serverless platform needs no request.
 */
export interface KeySetState {
  readonly issuer: string | undefined;
  readonly jwksUri: string;
  /** The JWK Set as it was received. */
  readonly body: string;
  readonly etag: string | undefined;
  readonly headers: CachingHeaders;
  /** Epoch milliseconds. */
  readonly requestedAt: number;
}

/** A stored response and its keys. */
export interface StoredSet extends KeySetState {
  readonly keys: VerificationKeys;
}

/** Whether a state, which comes from outside, has the form of one. */
export function isKeySetState(state: KeySetState | null): state is KeySetState {
  const headers: unknown = state?.headers;
  return (
    typeof state?.body === "string" &&
    Number.isFinite(state.requestedAt) &&
    typeof headers === "object" &&
    headers !== null &&
    Object.values(headers).every((value) => value === undefined || typeof value === "string") &&
    // It is sent again, and what cannot be sent would fail every request.
    (state.etag === undefined || (typeof state.etag === "string" && /^[ -~\u0080-\u00ff]*$/.test(state.etag)))
  );
}

/** Reads a JWK Set. @throws KeyMaterialError when it is none */
export type ReadKeys = (jwkSet: unknown) => VerificationKeys | Promise<VerificationKeys>;

/** @throws FetchError `ERR_FETCH_BODY` when the body is no JWK Set */
export async function storedSet(state: KeySetState, readKeys: ReadKeys): Promise<StoredSet> {
  try {
    return { ...state, keys: await readKeys(JSON.parse(state.body)) };
  } catch (cause) {
    throw new FetchError("ERR_FETCH_BODY", `${shownUrl(state.jwksUri)}: the body is not a JWK Set`, { cause });
  }
}

/** Whether a cache on the way has answered with another set than the stored one, and one that left the origin before it. */
export function isOutdated(next: StoredSet, stored: StoredSet | undefined): boolean {
  const isOther = next.keys !== stored?.keys && next.jwksUri === stored?.jwksUri;
  return isOther && leftOrigin(next) < leftOrigin(stored);
}

/** In epoch milliseconds. */
function leftOrigin({ requestedAt, headers }: StoredSet): number {
  return requestedAt - ageSeconds(headers) * 1000;
}

/** Kids that came and went between two sets; one with a new key did both. */
export function difference(
  before: VerificationKeys | undefined,
  after: VerificationKeys,
): { readonly added: readonly string[]; readonly removed: readonly string[] } {
  const old = before?.identities ?? new Map<string, string>();
  const added = [...after.identities].filter(([kid, identity]) => old.get(kid) !== identity).map(([kid]) => kid);
  const removed = [...old].filter(([kid, identity]) => after.identities.get(kid) !== identity).map(([kid]) => kid);
  return { added, removed };
}
