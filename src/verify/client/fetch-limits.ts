// The limits for everything that a client hosts: its metadata document and its keys. See
// docs/decisions/0041-what-clients-host.md.

import type { FreshnessBounds } from "../http-cache/freshness.ts";
import { type Budget, createBudget } from "../http-cache/request-budget.ts";
import type { HostLimits } from "../http-cache/throttled-fetch.ts";

/** Timeout for one request, in milliseconds. */
export const timeoutMs = 5_000;
/**
 * Minimum time between two successful fetches of the same URL for the same reason, in seconds. The possible reasons are
 * that there is no response yet, that the stored response is stale, and that it lacks a kid.
 */
export const leastSeconds = 20;

/** Creates a budget that allows one request to a URL every `leastSeconds`. */
export const newBudget = (): Budget => createBudget(1, [leastSeconds * 1000]);

/**
 * Maximum time for which a response is fresh, in seconds. A client can only shorten it, because expiry is the only
 * thing that makes the provider forget a stolen key or an incorrect document.
 */
export const maxFreshSeconds = 300;

export const clientBounds: FreshnessBounds = {
  minFreshSeconds: leastSeconds,
  maxFreshSeconds,
  defaultFreshSeconds: maxFreshSeconds,
  maxStaleSeconds: 0,
  outageToleranceSeconds: 3_600,
};

/** Limits on the requests to one host, because many clients can name the same host. */
export const hostLimits: HostLimits = { inFlight: 16, perMinute: 600 };
