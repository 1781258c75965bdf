import type { Clock } from "../../base/clock.ts";
import { FetchError } from "../../base/errors.ts";
import type { Fetch } from "./fetch-json.ts";

/**
 * Maximum number of requests in flight to all hosts. Requests for entries that were never proven get half of each
 * limit.
 */
const maxInFlight = 500;
const minuteMs = 60_000;

/** Limits on the requests to one host. */
export interface HostLimits {
  readonly inFlight: number;
  /** Maximum number of requests within a minute of the first one. */
  readonly perMinute: number;
}

export interface RequestLimitsOptions {
  readonly fetch: Fetch;
  readonly clock: Clock;
  /** Limits on the requests to each host. Default: no limit. */
  readonly perHost?: HostLimits;
}

/**
 * Sends a request, unless too many are in flight. The request's signal must abort when the response ends.
 *
 * @throws FetchError `ERR_FETCH_BUSY`
 */
export type LimitedFetch = (url: string, init: RequestInit, isProven: boolean) => Promise<Response>;

interface Load {
  inFlight: number;
  /** Number of requests since `since`. */
  recent: number;
  since: number;
}

/**
 * Limits how many requests are sent to servers, because anyone can name a server. Caches that share the returned
 * function share its limits.
 */
export function limitRequests({ fetch, clock, perHost }: RequestLimitsOptions): LimitedFetch {
  let inFlight = 0;
  /** Hosts with a request in flight or within the last minute, ordered by `since`. */
  const hosts = new Map<string, Load>();

  function loadOf(host: string, now: number): Load {
    for (const [name, { inFlight, since }] of hosts) {
      if (since <= now && now < since + minuteMs) break;
      if (inFlight === 0) hosts.delete(name);
    }
    const load = hosts.get(host) ?? { inFlight: 0, recent: 0, since: now };
    if (now < load.since || now >= load.since + minuteMs) {
      Object.assign(load, { recent: 0, since: now });
      hosts.delete(host);
    }
    hosts.set(host, load);
    return load;
  }

  return async (url, init, isProven) => {
    const share = isProven ? 1 : 1 / 2;
    const now = clock.now();
    const load = perHost && loadOf(new URL(url).hostname, now);
    if (inFlight >= maxInFlight * share || (load && load.inFlight >= perHost.inFlight * share))
      throw busy("in flight", 1);
    if (load && load.recent >= perHost.perMinute * share)
      throw busy("to one host", Math.ceil((load.since + minuteMs - now) / 1000));
    inFlight += 1;
    if (load) {
      load.inFlight += 1;
      load.recent += 1;
    }
    init.signal?.addEventListener(
      "abort",
      () => {
        inFlight -= 1;
        if (load) load.inFlight -= 1;
      },
      { once: true },
    );
    return fetch(url, init);
  };
}

function busy(where: string, retryAfterSeconds: number): FetchError {
  const message = `too many requests ${where}; try again in ${retryAfterSeconds} s`;
  return new FetchError("ERR_FETCH_BUSY", message, { retryAfterSeconds });
}
