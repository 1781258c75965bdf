import { notify } from "../async.ts";
import type { ErrorCode } from "../errors.ts";
import type { SkippedKey } from "../jwk/verification-keys.ts";
import { printable } from "../printable.ts";
import type { KeySetEvent } from "../relying-party/options.ts";

/** What was verified. */
export type TokenKind = "clientAssertion" | "requestObject";

/**
 * What happened to the tokens and keys of clients. No event holds a token or a key. What comes from outside, such as a kid, is cut at
 * 200 characters, and control characters are escaped.
 */
export type ClientEvent =
  /** A token was not accepted. */
  | { readonly type: "refused"; readonly kind: TokenKind; readonly clientId: string; readonly code: ErrorCode }
  /** The same, because of a budget that is empty: of requests for the keys of the client, of requests under way, or of the replay store. */
  | {
      readonly type: "exhausted";
      readonly budget: "keys" | "fetches" | "replay";
      readonly kind: TokenKind;
      readonly clientId: string;
    }
  /** What happened to the keys at a `jwks_uri`: fetched, changed, not fetched or no JWK Set. */
  | (Exclude<KeySetEvent, { type: "failed" }> & { readonly jwksUri: string })
  | { readonly type: "failed"; readonly jwksUri: string; readonly code: ErrorCode; readonly message: string }
  /** Keys by value that cannot be used, of those that a token asked for. */
  | { readonly type: "skipped"; readonly clientId: string; readonly keys: readonly SkippedKey[] };

const maxLength = 200;

/** Hands events to a listener, which may throw or reject without harm. */
export function clientEvents(onEvent: ((event: ClientEvent) => void) | undefined): (event: ClientEvent) => void {
  if (onEvent === undefined) return () => {};
  return (event) => {
    notify(onEvent, shown(event));
  };
}

/** What happened to a key set, of many. */
export function keySetEvent(jwksUri: string, event: KeySetEvent): ClientEvent {
  if (event.type !== "failed") return { ...event, jwksUri };
  // The error itself may hold what a server sent.
  const { code, message } = event.error;
  return { type: "failed", jwksUri, code, message };
}

/** The same with every text in it fit for a line of a log. */
function shown<Value>(value: Value): Value {
  if (typeof value === "string")
    return printable(value.length > maxLength ? `${value.slice(0, maxLength)}…` : value) as Value;
  if (Array.isArray(value)) return value.map(shown) as Value;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shown(member)])) as Value;
}
