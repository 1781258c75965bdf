import type { Clock } from "../../base/clock.ts";
import { KeyMaterialError, TokenError, invalidOption } from "../../base/errors.ts";
import { memberOf } from "../../base/json.ts";
import type { Optional } from "../../base/options.ts";
import { textHash } from "../../keys/crypto/text-hash.ts";
import {
  type VerificationKeys,
  entriesOf,
  maxUntrustedKeys,
  verificationKeysOnDemand,
} from "../../keys/jwk/verification-keys.ts";
import { type Budget, withoutReset } from "../http-cache/budget.ts";
import type { LimitedFetch } from "../http-cache/request-limits.ts";
import { type RemoteSet, createRemoteSets } from "../relying-party/remote-sets.ts";
import type { KeySource } from "../token/verify.ts";
import { type ClientEvent, keySetEvent } from "./events.ts";
import { leastSeconds, maxFreshSeconds, newBudget, timeoutMs } from "./hosted.ts";

// Sets of honest clients are small.
const maxBytes = 65_536;
const meanSetBytes = 4_096;
/**
 * Media types of a JWK Set. Other documents, which a server sends by mistake or for its users, are refused. @see RFC
 * 7517 section 8.5
 */
const mediaTypes = ["application/jwk-set+json", "application/json"];

/** A client, as registered with the provider: its id, and its keys by value or by URL. @see RFC 7591 section 2 */
export interface Client {
  /** Its identifier, the expected `iss` and `sub` of its tokens. */
  readonly clientId: string;
  /** Its keys as a JWK Set. Takes precedence over `jwksUri`. */
  readonly jwks?: Optional<{ readonly keys: readonly object[] }>;
  /** The https URL of its JWK Set. */
  readonly jwksUri?: Optional<string>;
}

interface ClientKeysOptions {
  readonly fetch: LimitedFetch | undefined;
  readonly clock: Clock;
  readonly maxKeySets: number;
  readonly emit: (event: ClientEvent) => void;
}

/** The keys of one client, for one token. */
export interface ClientKeys {
  readonly find: KeySource;
  /** Records that the keys have verified the token. */
  prove(this: void): void;
}

/** Creates a function that finds the keys of a client. */
export function createClientKeys({ fetch, clock, maxKeySets, emit }: ClientKeysOptions) {
  /** Keys by value, by a hash of their entries; the least recently used come first. */
  const byValue = new Map<string, VerificationKeys>();
  /**
   * Budgets for unknown kids, by client and URL, of clients whose token a key from that URL has verified; the least recent one first. Anyone can
   * make up clients that name a URL, so all others share the budget of its set.
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
   * Returns the keys of the entries with one kid, cached by content. Does not read other entries, because the set may
   * be large and the token may be forged.
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

  /** Makes an entry the latest one, and drops the oldest if there are too many. */
  function keep<Value>(map: Map<string, Value>, name: string, value: Value): void {
    map.delete(name);
    map.set(name, value);
    const [oldest] = map.keys();
    if (map.size > maxKeySets && oldest !== undefined) map.delete(oldest);
  }

  function remote(clientId: string, jwksUri: string): ClientKeys {
    if (remoteSets === undefined) {
      throw invalidOption(
        'a jwks_uri comes from outside and needs the "fetch" option, which must refuse private addresses; on Node, pass guardedFetch from "jwksd/node"',
      );
    }
    const name = JSON.stringify([clientId, jwksUri]);
    let used: RemoteSet | undefined;
    return {
      // Done only for a token that has passed the first checks, so other tokens cannot evict a client's set.
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

  return ({ clientId, jwks, jwksUri }: Client): ClientKeys => {
    if (jwks !== undefined && jwks !== null) return local(clientId, jwks);
    if (jwksUri !== undefined && jwksUri !== null) return remote(clientId, jwksUri);
    throw invalidOption(`client ${JSON.stringify(clientId)} has neither jwks nor jwksUri`);
  };
}

function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    throw new KeyMaterialError("ERR_KEY_FORMAT", "the client's jwks cannot be serialized as JSON");
  }
}
