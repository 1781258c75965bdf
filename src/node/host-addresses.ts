import { Resolver } from "node:dns/promises";
import { isIP } from "node:net";

/** An address of a host. */
export interface Address {
  /** As text, such as `192.0.2.1`. */
  readonly address: string;
  /** 4 or 6. */
  readonly family: number;
}

/** The first timeout of a query, which the resolver makes longer with each try. */
const timeoutMs = 2_000;
const tries = 2;
/** Each address is checked. No server of keys has more. */
const maxAddresses = 64;
const notThere = new Set(["ENOTFOUND", "ENODATA"]);

/**
 * Makes a function that asks DNS for all addresses of a host name. Unlike `dns.lookup`, it takes no thread of the pool, in which one silent
 * name server holds up all lookups of the process, and it ends when its signal aborts.
 *
 * The function rejects with the reason of the signal, or with an error of `node:dns`.
 *
 * @param servers name servers, as `dns.setServers` takes them. Default: those of the system
 */
export function createHostLookup(servers?: readonly string[]) {
  return async (host: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<readonly Address[]> => {
    signal?.throwIfAborted();
    // RFC 6761 section 6.3: never looked up in DNS.
    if (/(^|\.)localhost\.?$/i.test(host)) return ["127.0.0.1", "::1"].map(addressOf);
    // `cancel` ends all that a resolver does.
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
  const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
  const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
  if (addresses.length > maxAddresses)
    throw notFound(`${JSON.stringify(host)} has more than ${maxAddresses} addresses`);
  if (addresses.length > 0) return addresses.map(addressOf);
  const reasons = answers.flatMap((answer) =>
    answer.status === "rejected" ? [answer.reason as { code: string }] : [],
  );
  throw reasons.find(({ code }) => !notThere.has(code)) ?? notFound(`there is no address of ${JSON.stringify(host)}`);
}

const addressOf = (address: string): Address => ({ address, family: isIP(address) });

function notFound(message: string): Error {
  return Object.assign(new Error(message), { code: "ENOTFOUND" });
}
