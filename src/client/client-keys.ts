import { type Clock, systemClock } from "../clock.ts";
import { ConfigError, KeyMaterialError, TokenError } from "../errors.ts";
import { type VerificationKeys, verificationKeys } from "../jwk/verification-keys.ts";
import type { Fetch } from "../relying-party/fetch-json.ts";
import type { KeySource } from "../token/verify.ts";
import { createRemoteSets } from "./remote-sets.ts";

/** What the provider knows of a client: its id, and its keys by value or by URL. @see RFC 7591 section 2 */
export interface Client {
  readonly clientId: string;
  readonly jwks?: { readonly keys: readonly object[] } | null | undefined;
  readonly jwksUri?: string | null | undefined;
}

/** Finds the keys of clients. */
export function createClientKeys(fetch: Fetch | undefined, clock: Clock = systemClock) {
  const byValue = new WeakMap<object, { readonly text: string; readonly keys: Promise<VerificationKeys> }>();
  const setAt = fetch && createRemoteSets(fetch, clock);

  /** Imported once, and again when what is in the set has changed: a key may have been taken out of it. */
  function keysOf(jwks: object): Promise<VerificationKeys> {
    const text = jsonOf(jwks);
    const known = byValue.get(jwks);
    if (known?.text === text) return known.keys;
    const keys = verificationKeys(JSON.parse(text));
    // What is no object is no JWK Set, and cannot be remembered.
    if (typeof jwks === "object") byValue.set(jwks, { text, keys });
    return keys;
  }

  function local(jwks: object): KeySource {
    return async ({ kid = "", alg = "" }) => {
      const key = (await keysOf(jwks)).find(kid, alg);
      if (key === undefined)
        throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the kid of the token names no key of the client");
      return key;
    };
  }

  function remote(jwksUri: string): KeySource {
    if (setAt === undefined) {
      throw new ConfigError(
        "ERR_OPTION_INVALID",
        'a jwks_uri comes from outside, so the option "fetch" must guard against it; on Node pass guardedFetch of "jwksd/node"',
      );
    }
    // Looked for only now, by tokens that could be good: no other may drop the set of another client.
    return (header) => setAt(jwksUri).getKey(header);
  }

  return ({ clientId, jwks, jwksUri }: Client): KeySource => {
    if (jwks !== undefined && jwks !== null) return local(jwks);
    if (jwksUri !== undefined && jwksUri !== null) return remote(jwksUri);
    throw new ConfigError("ERR_OPTION_INVALID", `client ${JSON.stringify(clientId)} has neither jwks nor jwksUri`);
  };
}

function jsonOf(jwks: object): string {
  try {
    return JSON.stringify(jwks) ?? "null";
  } catch {
    throw new KeyMaterialError("ERR_KEY_FORMAT", "the jwks of a client is not what JSON can hold");
  }
}
