import type { IncomingMessage } from "node:http";
import { type RequestOptions, request } from "node:https";
import { Readable } from "node:stream";
import { FetchError, invalidOption } from "../base/errors.ts";
import { type Optional, type Rules, callback, checkOptions, nonEmptyString } from "../base/options.ts";
import { shownUrl } from "../base/urls.ts";
import type { Fetch } from "../verify/http-cache/fetch-json.ts";
import { type Address, createHostLookup } from "./dns-lookup.ts";
import { addressesOf, limitInformational, lookupOf } from "./pinned-addresses.ts";
import { isPublicAddress } from "./public-addresses.ts";

/**
 * Maximum number of lookups in flight. There is a limit because the function in the `resolve` option may ignore its
 * signal.
 */
const maxLookups = 500;

/** Options for `createGuardedFetch`. `guardedFetch` uses the defaults. */
export interface GuardedFetchOptions {
  /**
   * Returns all addresses of a host name. It must settle when the signal aborts. `(host) => dns.promises.lookup(host, {
   * all: true })` also uses the hosts file and search domains, but occupies a thread in the pool and ignores the
   * signal. Default: DNS only.
   */
  readonly resolve?:
    | ((host: string, options: { readonly signal?: AbortSignal }) => Promise<readonly Address[]>)
    | null
    | undefined;
  /** Whether connections to an address are allowed. Default: public unicast addresses only. */
  readonly isAllowed?: Optional<(address: string) => boolean>;
  /** Certificates to trust, as PEM. Default: the system's certificates. */
  readonly ca?: Optional<string>;
}

const rules: Rules<GuardedFetchOptions> = { resolve: callback, isAllowed: callback, ca: nonEmptyString };

/**
 * Creates a `fetch` for external URLs, such as a client's `jwks_uri`. It accepts only https, requires that all of the
 * host's addresses are allowed, and connects only to an address that was checked, even if the host name's addresses
 * change in the meantime. It sends only GET requests, does not follow redirects, and rejects a compressed body unless
 * the status is an error.
 *
 * The returned function throws ConfigError `ERR_OPTION_INVALID` if it is given a method other than GET or a body,
 * FetchError `ERR_URL_INSECURE`, `ERR_ADDRESS_FORBIDDEN`, `ERR_FETCH_BUSY`, `ERR_FETCH_STATUS` and `ERR_FETCH_BODY`,
 * and errors from the lookup and the connection.
 *
 * @example
 * ```ts
 * // A client in a private network that you trust.
 * const fetch = createGuardedFetch({ isAllowed: (address) => address === "10.0.0.7" || isPublicAddress(address) });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export function createGuardedFetch(options: GuardedFetchOptions = {}): Fetch {
  const { resolve = createHostLookup(), isAllowed = isPublicAddress, ca } = checkOptions(options, rules);
  let lookups = 0;

  async function lookUp(host: string, signal: AbortSignal | null | undefined): Promise<readonly Address[]> {
    if (lookups >= maxLookups) {
      const message = "too many DNS lookups are in flight; retry in 1 s";
      throw new FetchError("ERR_FETCH_BUSY", message, { retryAfterSeconds: 1 });
    }
    lookups += 1;
    try {
      return await resolve(host, signal ? { signal } : {});
    } finally {
      lookups -= 1;
    }
  }

  return async (url, init) => {
    if ((init.method ?? "GET").toUpperCase() !== "GET" || (init.body ?? null) !== null) {
      throw invalidOption("a guarded fetch sends only GET requests, without a body");
    }
    const { protocol, hostname } = new URL(url);
    if (protocol !== "https:") throw new FetchError("ERR_URL_INSECURE", `${shownUrl(url)} is not an https URL`);
    const addresses = await addressesOf(hostname, (host) => lookUp(host, init.signal));
    // Only `true` allows an address, because the promise that an async function returns is truthy.
    const forbidden = addresses.find(({ address }) => (isAllowed(address) as unknown) !== true);
    if (forbidden !== undefined || addresses.length === 0) {
      throw new FetchError(
        "ERR_ADDRESS_FORBIDDEN",
        `${shownUrl(url)}: its host has no address, or has an address that is not public`,
      );
    }
    return send(url, init, { ca, lookup: lookupOf(addresses) });
  };
}

/** Fetches an external URL, with the defaults of {@link createGuardedFetch}. */
export const guardedFetch: Fetch = createGuardedFetch();

function send(url: string, init: RequestInit, connection: RequestOptions): Promise<Response> {
  return new Promise((resolve, reject) => {
    const headers = Object.fromEntries(new Headers(init.headers));
    const outgoing = request(url, {
      ...connection,
      // A pooled connection could be to an unchecked address.
      agent: false,
      // Some firewalls reject requests without a user agent.
      headers: { "user-agent": "jwksd", ...headers, "accept-encoding": "identity" },
      ...(init.signal && { signal: init.signal }),
    });
    limitInformational(outgoing, (status) => {
      const message = `${shownUrl(url)} repeatedly responded with status ${status}`;
      return new FetchError("ERR_FETCH_STATUS", message);
    });
    outgoing.on("error", reject).once("response", (incoming) => {
      const status = incoming.statusCode ?? 0;
      // If the status is an error, nothing needs the body, and the caller must see the status, which may indicate an
      // outage.
      if (status < 300 && (incoming.headers["content-encoding"] ?? "identity") !== "identity") {
        incoming.destroy();
        reject(
          new FetchError(
            "ERR_FETCH_BODY",
            `${shownUrl(url)}: the body is compressed, even though the request did not allow compression`,
          ),
        );
        return;
      }
      // The Response constructor throws for some statuses and fields, such as status 600, or 205 with a body.
      try {
        resolve(responseOf(incoming, status));
      } catch {
        incoming.destroy();
        reject(new FetchError("ERR_FETCH_STATUS", `${shownUrl(url)} responded with status ${status}`));
      }
    });
    outgoing.end();
  });
}

function responseOf(incoming: IncomingMessage, status: number): Response {
  const hasBody = status !== 204 && status !== 304;
  if (!hasBody) incoming.resume();
  const fields = Object.entries(incoming.headersDistinct).flatMap(([name, values = []]) =>
    values.map((value): [string, string] => [name, value]),
  );
  const body = hasBody ? (Readable.toWeb(incoming) as ReadableStream<Uint8Array<ArrayBuffer>>) : null;
  return new Response(body, { status, headers: fields });
}
