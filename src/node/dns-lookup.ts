import { Resolver } from "node:dns/promises";
import { isIP } from "node:net";

/** A host's address. */
export interface Address {
  /** Address as a string, such as `192.0.2.1`. */
  readonly address: string;
  /** IP version: 4 or 6. */
  readonly family: number;
}

/** Timeout for a query's first attempt, in milliseconds. The resolver increases it with each attempt. */
const timeoutMs = 2_000;
const tries = 2;
/**
 * Maximum number of addresses that a host can have. There is a limit because each address is checked. No key server has
 * more addresses than this.
 */
const maxAddresses = 64;
const missingCodes = new Set(["ENOTFOUND", "ENODATA"]);

/**
 * Creates a function that queries DNS for all addresses of a host name. Unlike `dns.lookup`, the function stops when
 * its signal aborts and does not occupy a thread in the pool, where a single unresponsive name server would delay all
 * of the process's lookups.
 *
 * The function rejects with the signal's reason or a `node:dns` error.
 *
 * @param servers name servers, in the form that `dns.setServers` accepts. Default: the system's name servers
 */
export function createHostLookup(servers?: readonly string[]) {
  return async (host: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<readonly Address[]> => {
    signal?.throwIfAborted();
    // RFC 6761 section 6.3: these names are never looked up in DNS.
    if (/(^|\.)localhost\.?$/i.test(host)) return ["127.0.0.1", "::1"].map(addressOf);
    // Each lookup has its own resolver, because `cancel` ends all of a resolver's queries.
    const resolver = new Resolver({ timeout: timeoutMs, tries });
    if (servers !== undefined) resolver.setServers(servers);
    const cancel = (): void => resolver.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      return await addressesOf(resolver, host);
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  };
}

async function addressesOf(resolver: Resolver, host: string): Promise<readonly Address[]> {
  const results = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
  const addresses = results.flatMap((result) => (result.status === "fulfilled" ? result.value : []));
  if (addresses.length > maxAddresses)
    throw notFound(`${JSON.stringify(host)} has more than ${maxAddresses} addresses`);
  if (addresses.length > 0) return addresses.map(addressOf);
  const reasons = results.flatMap((result) =>
    result.status === "rejected" ? [result.reason as { code: string }] : [],
  );
  throw reasons.find(({ code }) => !missingCodes.has(code)) ?? notFound(`${JSON.stringify(host)} has no address`);
}

const addressOf = (address: string): Address => ({ address, family: isIP(address) });

function notFound(message: string): Error {
  return Object.assign(new Error(message), { code: "ENOTFOUND" });
}
