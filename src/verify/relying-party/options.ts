import { type Clock, systemClock } from "../../base/clock.ts";
import { type JwksdError, invalidOption } from "../../base/errors.ts";
import {
  type Optional,
  type Rules,
  anything,
  boolean,
  callback,
  checkOptions,
  clock,
  number,
  string,
  timeout,
} from "../../base/options.ts";
import type { SkippedKey } from "../../keys/jwk/verification-keys.ts";
import type { Fetch } from "../http-cache/fetch-json.ts";
import type { KeySetState } from "./cached-key-set.ts";
import { checkIssuer, checkSecureUrl } from "./secure-urls.ts";

/** An event from a key set. */
export type KeySetEvent =
  /** The set was fetched (200) or confirmed (304). `bytes` is the size of the decompressed body. */
  | { readonly type: "refreshed"; readonly status: 200 | 304; readonly bytes: number }
  /** Keys were added or removed. A kid whose key was replaced is in both lists. */
  | { readonly type: "changed"; readonly added: readonly string[]; readonly removed: readonly string[] }
  /** Entries in the set cannot be used. */
  | { readonly type: "skipped"; readonly keys: readonly SkippedKey[] }
  /** A fetch failed, or the set's state could not be loaded, used or stored. */
  | { readonly type: "failed"; readonly error: JwksdError }
  /**
   * A cache between this verifier and the provider responded even though the request had `no-cache`. New keys may reach
   * this verifier late.
   */
  | { readonly type: "cache-bypass-failed"; readonly ageSeconds: number }
  /** A token was rejected (`ERR_TOKEN_KID_UNKNOWN`). The kid is not reported, because it is attacker-controlled. */
  | { readonly type: "unknown-kid" }
  /** A token was rejected because the keys cannot be refetched yet (`ERR_KEYS_RETRY_LATER`). */
  | { readonly type: "exhausted" };

/** Options for `createRemoteKeySet`. Either `issuer` or `jwksUri` is required. */
export interface RemoteKeySetOptions {
  /**
   * An OpenID provider's issuer. Its discovery document contains the URL of the JWK Set. Required unless `jwksUri` is
   * given.
   */
  readonly issuer?: Optional<string>;
  /** URL of the JWK Set. Required unless `issuer` is given. */
  readonly jwksUri?: Optional<string>;
  /** Whether http is accepted for non-loopback hosts. Default: `false`. */
  readonly allowInsecure?: Optional<boolean>;
  /** Sends the requests. Default: the global `fetch`. */
  readonly fetch?: Optional<Fetch>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Clock>;
  /** Time limit for one request, including the body, in milliseconds. Default: 5000. */
  readonly timeoutMs?: Optional<number>;
  /**
   * Minimum time that a set stays fresh, regardless of its headers, in seconds. With a longer time, the set remains
   * usable while a provider that sends `no-cache`, such as Keycloak, restarts, but a revoked key is also trusted for
   * that long. Default: 5.
   */
  readonly minFreshSeconds?: Optional<number>;
  /** Maximum time that a set stays fresh, in seconds. Default: 86400. */
  readonly maxFreshSeconds?: Optional<number>;
  /**
   * How long a set that is no longer fresh is used while its server is down, in seconds. If the server's
   * `stale-while-revalidate` is longer, it applies instead, even if this option is 0. The server's `must-revalidate`,
   * `no-cache` and `no-store` forbid this use, and its `stale-if-error` may shorten the time. Default: 3600.
   */
  readonly outageToleranceSeconds?: Optional<number>;
  /**
   * Maximum time that a call waits for a response while the old keys may still be used, in milliseconds. Default: 1000.
   */
  readonly maxWaitMs?: Optional<number>;
  /** Receives an event for each fetch, change, failure and rejected token. Default: no listener. */
  readonly onEvent?: Optional<(event: KeySetEvent) => void>;
  /** The result of an earlier process's `state()`. A state for a different issuer or URL is ignored. Default: none. */
  readonly state?: Optional<KeySetState>;
}

export const keySetRules: Rules<RemoteKeySetOptions> = {
  issuer: string,
  jwksUri: string,
  allowInsecure: boolean,
  fetch: callback,
  clock,
  timeoutMs: timeout,
  minFreshSeconds: number(0),
  maxFreshSeconds: number(0),
  outageToleranceSeconds: number(0),
  maxWaitMs: number(0),
  onEvent: callback,
  // A state comes from a store. If it is damaged, that must not prevent the process from starting.
  state: anything,
};

const defaultFreshSeconds = 300;

/**
 * Returns the options with their defaults.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, FetchError `ERR_URL_INSECURE`
 */
export function resolveOptions(options: RemoteKeySetOptions) {
  const given = checkOptions(options, keySetRules);
  const { issuer, jwksUri, allowInsecure = false, clock = systemClock, onEvent } = given;
  const { fetch = (url: string, init: RequestInit) => globalThis.fetch(url, init) } = given;
  const { timeoutMs = 5_000, maxWaitMs = 1_000 } = given;
  const { minFreshSeconds = 5, maxFreshSeconds = 86_400, outageToleranceSeconds = 3_600, state } = given;
  const place = placeOf(issuer, jwksUri, allowInsecure);
  const bounds = { minFreshSeconds, maxFreshSeconds, defaultFreshSeconds, outageToleranceSeconds };
  return { place, allowInsecure, fetch, clock, timeoutMs, maxWaitMs, bounds, onEvent, state };
}

/** Location of a JWK Set: its URL, or the issuer whose discovery document contains the URL. */
export type KeySetPlace =
  | { readonly issuer: string; readonly jwksUri?: undefined }
  | { readonly issuer?: undefined; readonly jwksUri: string };

/** @throws ConfigError `ERR_OPTION_INVALID`, FetchError `ERR_URL_INSECURE` */
function placeOf(issuer: string | undefined, jwksUri: string | undefined, allowInsecure: boolean): KeySetPlace {
  if (issuer !== undefined && jwksUri === undefined) {
    checkSecureUrl(issuer, "issuer", allowInsecure);
    checkIssuer(issuer);
    return { issuer };
  }
  if (issuer !== undefined || jwksUri === undefined) throw invalidOption("pass either issuer or jwksUri");
  return { jwksUri: checkSecureUrl(jwksUri, "jwksUri", allowInsecure) };
}
