import type { IncomingMessage } from "node:http";
import { type RequestOptions, request } from "node:https";
import { isIP } from "node:net";
import { Readable } from "node:stream";
import ipaddr from "ipaddr.js";
import { FetchError } from "../errors.ts";
import { shownUrl } from "../relying-party/urls.ts";
import type { Fetch } from "../relying-party/fetch-json.ts";
import { type Address, createHostLookup } from "./host-addresses.ts";

/** Informational replies (1xx) before the final one: without a bound they are a body without end. */
const maxInformational = 16;

/** Lookups under way, of one guarded fetch. A `resolve` that cannot be cancelled must not pile them up. */
const maxLookups = 500;

/** Options of `createGuardedFetch`; the defaults are those of `guardedFetch`. */
export interface GuardedFetchOptions {
  /**
   * All addresses of a host name; ends when the signal aborts. Default: the hosts file of the system, then DNS, without a thread of the
   * pool. For other sources of nsswitch.conf, such as LDAP, pass `(host) => dns.promises.lookup(host, { all: true })`, which has none
   * of these two properties.
   */
  readonly resolve?:
    | ((host: string, options: { readonly signal?: AbortSignal }) => Promise<readonly Address[]>)
    | undefined;
  /** Whether an address may be connected to. Default: public unicast addresses only. */
  readonly isAllowed?: ((address: string) => boolean) | undefined;
  /** Certificates to trust instead of those of the system, as PEM. */
  readonly ca?: string | undefined;
}

/** @see RFC 4291 section 2.4; https://www.iana.org/assignments/ipv6-address-space */
const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");

/**
 * In the middle of public addresses, but in every network of Azure the platform itself: resolver, agent and metadata of the machine.
 *
 * @see https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
 */
const azurePlatform = "168.63.129.16";

/**
 * Whether an address is public: not private, loopback, link-local (where cloud metadata services are), the platform of Azure, unique
 * local, multicast, reserved, or an IPv6 form that stands for such an IPv4 address.
 */
export function isPublicAddress(address: string): boolean {
  // Stricter than the library, to which 010.0.0.1 is 8.0.0.1, and 1.2.3 an address.
  if (isIP(address) === 0) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== "unicast" || parsed.toString() === azurePlatform) return false;
  // The rest of IPv6 is "unicast" to the library too, with ::127.0.0.1 and whatever is not assigned yet.
  return parsed instanceof ipaddr.IPv4 || parsed.match(globalUnicast);
}

/**
 * Makes a `fetch` for URLs that come from outside: https only, every address of the host must be allowed, and the connection goes to
 * one of the addresses that were checked, whatever the name resolves to a moment later. Redirects are not followed, and compressed
 * replies are refused.
 *
 * It throws FetchError `ERR_URL_INSECURE`, `ERR_ADDRESS_FORBIDDEN`, `ERR_FETCH_BUSY`, `ERR_FETCH_STATUS` and `ERR_FETCH_BODY`, and
 * what the lookup and the connection throw.
 */
export function createGuardedFetch({
  resolve = createHostLookup(),
  isAllowed = isPublicAddress,
  ca,
}: GuardedFetchOptions = {}): Fetch {
  let lookups = 0;

  async function addressesOf(host: string, signal: AbortSignal | null | undefined): Promise<readonly Address[]> {
    if (isIP(host) !== 0) return [{ address: host, family: isIP(host) }];
    if (lookups >= maxLookups) {
      const message = "too many lookups of hosts are under way; try again in 1 s";
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
    const { protocol, hostname } = new URL(url);
    if (protocol !== "https:") throw new FetchError("ERR_URL_INSECURE", `${shownUrl(url)} is not an https URL`);
    const host = hostname.replace(/^\[(.*)\]$/, "$1");
    const addresses = await addressesOf(host, init.signal);
    // Nothing but true allows: a promise would be as good as true.
    const forbidden = addresses.find(({ address }) => (isAllowed(address) as unknown) !== true);
    if (forbidden !== undefined || addresses.length === 0) {
      throw new FetchError(
        "ERR_ADDRESS_FORBIDDEN",
        `${shownUrl(url)}: its host is at no address, or at one that is not public`,
      );
    }
    return send(url, init, {
      ca,
      // Called by the connection instead of a resolver.
      lookup: (_host, { all }, callback) => {
        if (all === true) callback(null, [...addresses]);
        else callback(null, (addresses[0] as Address).address, (addresses[0] as Address).family);
      },
    });
  };
}

/** {@link createGuardedFetch} with its defaults. */
export const guardedFetch: Fetch = createGuardedFetch();

function send(url: string, init: RequestInit, connection: RequestOptions): Promise<Response> {
  return new Promise((resolve, reject) => {
    const headers = Object.fromEntries(new Headers(init.headers));
    const outgoing = request(url, {
      ...connection,
      // A connection of an agent's pool would not be to a checked address.
      agent: false,
      headers: { ...headers, "accept-encoding": "identity" },
      ...(init.signal && { signal: init.signal }),
    });
    let informational = 0;
    outgoing.on("information", ({ statusCode }) => {
      informational += 1;
      if (informational <= maxInformational) return;
      outgoing.destroy(
        new FetchError("ERR_FETCH_STATUS", `${shownUrl(url)}: answered with status ${statusCode}, and no other`),
      );
    });
    outgoing.on("error", reject).once("response", (incoming) => {
      const status = incoming.statusCode ?? 0;
      if ((incoming.headers["content-encoding"] ?? "identity") !== "identity") {
        incoming.destroy();
        reject(new FetchError("ERR_FETCH_BODY", `${shownUrl(url)}: the body is compressed, which was not asked for`));
        return;
      }
      // The server chooses status and fields, and a Response does not take each: 205 has no body, 600 does not exist.
      try {
        resolve(responseOf(incoming, status));
      } catch {
        incoming.destroy();
        reject(new FetchError("ERR_FETCH_STATUS", `${shownUrl(url)}: answered with status ${status}`));
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
