import { notify } from "../../base/async.ts";
import type { JwksdErrorCode } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import type { SkippedKey } from "../../keys/jwk/verification-keys.ts";
import type { KeySetEvent } from "../relying-party/options.ts";

/** Kind of token that a client signed. */
export type TokenKind = "clientAssertion" | "requestObject";

/**
 * An event about clients' tokens and keys. Events never contain tokens or keys. External strings, such as a kid, are
 * truncated to 200 characters, and their control characters are escaped.
 */
export type ClientVerifierEvent =
  /** A token was rejected. */
  | { readonly type: "refused"; readonly kind: TokenKind; readonly clientId: string; readonly code: JwksdErrorCode }
  /**
   * A refusal was caused by too many requests for the client's document or keys, too many requests overall, or a full
   * replay store.
   */
  | {
      readonly type: "exhausted";
      readonly budget: "documents" | "keys" | "fetches" | "replay";
      readonly kind: TokenKind;
      readonly clientId: string;
    }
  /** An event from the key set at a `jwks_uri`. */
  | (Exclude<KeySetEvent, { type: "failed" | RefusedType }> & { readonly jwksUri: string })
  /** A `jwks_uri` could not be fetched, or did not return a JWK Set. */
  | { readonly type: "failed"; readonly jwksUri: string; readonly code: JwksdErrorCode; readonly message: string }
  /** Keys that were passed by value have a token's kid but cannot be used. */
  | { readonly type: "skipped"; readonly clientId: string; readonly keys: readonly SkippedKey[] };

/** A key set's events about rejected tokens. They are reported as refusals of the client's tokens. */
type RefusedType = "unknown-kid" | "exhausted";

/**
 * An event about a client's metadata document. External strings are truncated to 200 characters, and their control
 * characters are escaped.
 */
export type ClientDocumentEvent =
  /** The document was fetched (200) or confirmed (304). */
  | { readonly type: "refreshed"; readonly clientId: string; readonly status: 200 | 304; readonly bytes: number }
  /** The document could not be fetched, or is invalid. */
  | { readonly type: "failed"; readonly clientId: string; readonly code: JwksdErrorCode; readonly message: string };

const maxShownLength = 200;

/** Creates a function that makes the strings in events printable and passes the events to the listener. */
export function printableEvents<Event>(onEvent: ((event: Event) => void) | undefined): (event: Event) => void {
  if (onEvent === undefined) return () => {};
  return (event) => notify(onEvent, printableIn(event));
}

/** Converts an event from one key set to a client event. Returns `undefined` if it is reported as a refusal. */
export function keySetEvent(jwksUri: string, event: KeySetEvent): ClientVerifierEvent | undefined {
  if (event.type === "unknown-kid" || event.type === "exhausted") return undefined;
  if (event.type !== "failed") return { ...event, jwksUri };
  // The error's cause is omitted, because it may quote the response.
  const { code, message } = event.error;
  return { type: "failed", jwksUri, code, message };
}

/** Returns a copy of a value in which all strings are truncated and printable. */
function printableIn<Value>(value: Value): Value {
  if (typeof value === "string")
    return printable(value.length > maxShownLength ? `${value.slice(0, maxShownLength)}…` : value) as Value;
  if (Array.isArray(value)) return value.map(printableIn) as Value;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, printableIn(member)])) as Value;
}
