import type { Clock } from "../../base/clock.ts";
import { KeyMaterialError, TokenError, invalidOption } from "../../base/errors.ts";
import { memberOf } from "../../base/json.ts";
import type { Optional } from "../../base/options.ts";
import { textHash } from "../../keys/crypto/text-sha256.ts";
import {
  type VerificationKeys,
  entriesOf,
  maxUntrustedKeys,
  verificationKeysOnDemand,
} from "../../keys/jwk/verification-keys.ts";
import { type Budget, withoutReset } from "../http-cache/request-budget.ts";
import type { LimitedFetch } from "../http-cache/throttled-fetch.ts";
import { type RemoteSet, createRemoteSets } from "../relying-party/remote-sets.ts";
import type { KeyResolver } from "../token/verify.ts";
import { type ClientVerifierEvent, keySetEvent } from "./events.ts";
import { leastSeconds, maxFreshSeconds, newBudget, timeoutMs } from "./fetch-limits.ts";

// Honest clients' sets are small.
const maxBytes = 65_536;
const meanSetBytes = 4_096;
/**
 * Media types of a JWK Set. Documents of other types, which a server may send by mistake or intend for its users, are
 * rejected.
 *
 * @see RFC 7517 section 8.5
 */
const mediaTypes = ["application/jwk-set+json", "application/json"];

/**
 * A registered client's ID and its keys, which are given by value or by URL.
 *
 * @see RFC 7591 section 2
 */
export interface ClientKeyMetadata {
  /** The client's identifier, which must be the `iss` and `sub` of its tokens. */
  readonly clientId: string;
  /** The client's keys, as a JWK Set. Takes precedence over `jwksUri`. */
  readonly jwks?: Optional<{ readonly keys: readonly object[] }>;
  /** The https URL of the client's JWK Set. */
  readonly jwksUri?: Optional<string>;
}

interface ClientKeysOptions {
  readonly fetch: LimitedFetch | undefined;
  readonly clock: Clock;
  readonly maxKeySets: number;
  readonly emit: (event: ClientVerifierEvent) => void;
}

/** The keys of one client, for one token. */
export interface ClientKeys {
  readonly find: KeyResolver;
  /** Records that the keys have verified the token. */
  prove(this: void): void;
}

/** Creates a function that finds a client's keys. */
export function createClientKeys({ fetch, clock, maxKeySets, emit }: ClientKeysOptions) {
  /** Keys that were passed by value, keyed by a hash of their entries, least recently used first. */
  const byValue = new Map<string, VerificationKeys>();
  /**
   * Budgets for unknown kids, keyed by client and URL, least recently used first. A client has its own budget only if
   * one of its tokens was verified with a key from the URL. Anyone can make up clients that name a URL, so all other
   * clients share the budget of the URL's set.
   */
  const budgets = new Map<string, Budget>();
  const remoteSets =
    fetch &&
    createRemoteSets({
      fetch,
      clock,
      maxKeySets,
      meanBytes: meanSetBytes,
      optionsOf: (jwksUri) => ({ jwksUri, timeoutMs, minFreshSeconds: leastSeconds, maxFreshSeconds }),
      internalOf: () => ({ readKeys: verificationKeysOnDemand, mediaTypes, maxStaleSeconds: 0, maxBytes }),
      newBudget,
      emit(name, _keys, event) {
        const clientEvent = keySetEvent(name, event);
        if (clientEvent !== undefined) emit(clientEvent);
      },
    });

  function local(clientId: string, jwks: object): ClientKeys {
    return {
      async find({ kid = "", alg = "" }) {
        const named = [...entriesOf(jwks, maxUntrustedKeys).entries()].filter(
          ([, entry]) => memberOf(entry, "kid") === kid,
        );
        const key = named.length > 0 && (await keysOf(clientId, named)).find(kid, alg);
        if (!key) throw new TokenError("ERR_TOKEN_KID_UNKNOWN", "the client has no key with the token's kid");
        return key;
      },
      prove() {},
    };
  }

  /**
   * Returns the keys from the entries that have a given kid, and caches them by content. Does not read other entries,
   * because the set may be large and the token may be forged.
   */
  async function keysOf(clientId: string, named: readonly (readonly [index: number, entry: unknown])[]) {
    const text = jsonText(named.map(([, entry]) => entry));
    const name = await textHash(text);
    const known = byValue.get(name);
    const keys = known ?? verificationKeysOnDemand({ keys: JSON.parse(text) });
    keep(byValue, name, keys);
    if (known === undefined && keys.skipped.length > 0) {
      const skipped = keys.skipped.map((key) => ({ ...key, index: named[key.index]?.[0] ?? 0 }));
      emit({ type: "skipped", clientId, keys: skipped });
    }
    return keys;
  }

  /** Makes an entry the latest one. If there are too many, drops the oldest. */
  function keep<Value>(map: Map<string, Value>, name: string, value: Value): void {
    map.delete(name);
    map.set(name, value);
    const [oldest] = map.keys();
    if (map.size > maxKeySets && oldest !== undefined) map.delete(oldest);
  }

  function remote(clientId: string, jwksUri: string): ClientKeys {
    if (remoteSets === undefined) {
      throw invalidOption(
        'a client with a jwks_uri requires the "fetch" option, which must refuse private addresses; on Node, pass guardedFetch from "jwksd/node"',
      );
    }
    const name = JSON.stringify([clientId, jwksUri]);
    let used: RemoteSet | undefined;
    return {
      // Only called for a token that has passed the first checks, so that other tokens cannot evict a client's set.
      find(header) {
        used = remoteSets.use(jwksUri);
        return used.resource.find(header, budgets.get(name) ?? used.budgets.other);
      },
      prove() {
        if (used === undefined) return;
        remoteSets.prove(used);
        keep(budgets, name, budgets.get(name) ?? withoutReset(newBudget()));
      },
    };
  }

  return ({ clientId, jwks, jwksUri }: ClientKeyMetadata): ClientKeys => {
    if (jwks !== undefined && jwks !== null) return local(clientId, jwks);
    if (jwksUri !== undefined && jwksUri !== null) return remote(clientId, jwksUri);
    throw invalidOption(`client ${JSON.stringify(clientId)} has neither jwks nor jwksUri`);
  };
}

function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    throw new KeyMaterialError("ERR_KEY_FORMAT", "the client's jwks must be serializable as JSON");
  }
}
