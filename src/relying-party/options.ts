import { type Clock, systemClock } from "../clock.ts";
import { ConfigError, type JwksdError } from "../errors.ts";
import { type Rules, anything, boolean, callback, checkOptions, clock, number, string, timeout } from "../options.ts";
import type { SkippedKey } from "../jwk/verification-keys.ts";
import type { Fetch } from "./fetch-json.ts";
import type { KeySetState } from "./stored.ts";
import { checkUrl } from "./urls.ts";

/** What happened to a key set. */
export type KeySetEvent =
  | { readonly type: "refreshed"; readonly status: 200 | 304 }
  | { readonly type: "changed"; readonly added: readonly string[]; readonly removed: readonly string[] }
  /** Entries that cannot be used. */
  | { readonly type: "skipped"; readonly keys: readonly SkippedKey[] }
  | { readonly type: "failed"; readonly error: JwksdError }
  /** A cache on the way answered although it was asked not to; a rotated key may reach this verifier late. */
  | { readonly type: "bypass-ineffective"; readonly ageSeconds: number };

/** Options of `createRemoteKeySet`. Either `issuer` or `jwksUri` is required. */
export interface RemoteKeySetOptions {
  /** The keys are those of this OpenID provider, by discovery. */
  readonly issuer?: string | null | undefined;
  /** The keys are at this URL. */
  readonly jwksUri?: string | null | undefined;
  /** Allows http for hosts that are not loopback. Default: `false`. */
  readonly allowInsecure?: boolean | undefined;
  /** Default: the global `fetch`. */
  readonly fetch?: Fetch | undefined;
  readonly clock?: Clock | undefined;
  /** For one request, body included, in milliseconds. Default: 5000. */
  readonly timeoutMs?: number | undefined;
  /** Of a decoded body. Default: 262144. */
  readonly maxBytes?: number | undefined;
  /** A set counts as fresh for at least so long, whatever its server says, in seconds. Default: 5. */
  readonly minFreshSeconds?: number | undefined;
  /** Default: 86400. */
  readonly maxFreshSeconds?: number | undefined;
  /**
   * How long to use a set beyond its freshness while it cannot be had anew, in seconds; 0 for never. A server that says
   * `must-revalidate`, `no-cache` or `no-store` forbids that, one that says `stale-if-error` may shorten it. Default: 3600.
   */
  readonly outageToleranceSeconds?: number | undefined;
  /** How long a call may wait for the next request, in milliseconds. Default: 1000. */
  readonly maxWaitMs?: number | undefined;
  readonly onEvent?: ((event: KeySetEvent) => void) | undefined;
  /** A stored response from `state()` of an earlier process. One that does not fit is passed over. */
  readonly state?: KeySetState | undefined;
}

const rules: Rules<RemoteKeySetOptions> = {
  issuer: string,
  jwksUri: string,
  allowInsecure: boolean,
  fetch: callback,
  clock,
  timeoutMs: timeout,
  maxBytes: number(1),
  minFreshSeconds: number(0),
  maxFreshSeconds: number(0),
  outageToleranceSeconds: number(0),
  maxWaitMs: number(0),
  onEvent: callback,
  // It comes from a store, and must not stop a start.
  state: anything,
};

const defaultFreshSeconds = 300;
const maxStaleSeconds = 86_400;

/** The options with their defaults. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, FetchError `ERR_URL_INSECURE` */
export function resolveOptions(options: RemoteKeySetOptions) {
  checkOptions(options, rules);
  const { onEvent, state } = options;
  // A row of a database has null for what is not given.
  const issuer = options.issuer ?? undefined;
  const jwksUri = options.jwksUri ?? undefined;
  const allowInsecure = options.allowInsecure ?? false;
  const clock = options.clock ?? systemClock;
  const { timeoutMs = 5_000, maxBytes = 262_144, maxWaitMs = 1_000 } = options;
  const { minFreshSeconds = 5, maxFreshSeconds = 86_400, outageToleranceSeconds = 3_600 } = options;
  if ((issuer === undefined) === (jwksUri === undefined)) {
    throw new ConfigError("ERR_OPTION_INVALID", "give either issuer or jwksUri");
  }
  if (issuer !== undefined) checkUrl(issuer, "issuer", allowInsecure);
  if (jwksUri !== undefined) checkUrl(jwksUri, "jwksUri", allowInsecure);
  const fetch: Fetch = options.fetch ?? ((url, init) => globalThis.fetch(url, init));
  const bounds = { minFreshSeconds, maxFreshSeconds, defaultFreshSeconds, maxStaleSeconds, outageToleranceSeconds };
  return { issuer, jwksUri, allowInsecure, fetch, clock, timeoutMs, maxBytes, maxWaitMs, bounds, onEvent, state };
}
