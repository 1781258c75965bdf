import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { isIP } from "node:net";

/** An address of a host. */
export interface Address {
  /** As text, such as `192.0.2.1`. */
  readonly address: string;
  /** 4 or 6. */
  readonly family: number;
}

/** Where names are looked up. Default: as the system is configured. */
interface Sources {
  readonly hostsFile?: string;
  readonly resolverFile?: string;
  /** Name servers, as `dns.setServers` takes them. */
  readonly servers?: readonly string[];
}

const systemHostsFile =
  process.platform === "win32" ? `${process.env["SystemRoot"]}\\System32\\drivers\\etc\\hosts` : "/etc/hosts";
/** The first timeout of a query, which the resolver makes longer with each try. */
const timeoutMs = 2_000;
const tries = 2;
const notThere = new Set(["ENOTFOUND", "ENODATA"]);

/**
 * Makes a function that looks up all addresses of a host name: in the hosts file, else by DNS with the search rules of resolv.conf(5),
 * like `hosts: files dns` in nsswitch.conf(5). Unlike `dns.lookup`, it takes no thread of the pool, which files and databases need, and
 * it ends when its signal aborts.
 *
 * The function rejects with the reason of the signal, or with an error of `node:dns`.
 */
export function createHostLookup({
  hostsFile = systemHostsFile,
  resolverFile = "/etc/resolv.conf",
  servers,
}: Sources = {}) {
  return async (host: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<readonly Address[]> => {
    const name = host.toLowerCase();
    // RFC 6761 section 6.3: never looked up in DNS.
    if (/(^|\.)localhost\.?$/.test(name)) return ["127.0.0.1", "::1"].map(addressOf);
    const listed = hostsEntries(await textOf(hostsFile), name);
    if (listed.length > 0) return listed;
    const candidates = candidateNames(name, await textOf(resolverFile));
    signal?.throwIfAborted();
    const resolver = new Resolver({ timeout: timeoutMs, tries });
    if (servers !== undefined) resolver.setServers(servers);
    const cancel = (): void => resolver.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      for (const candidate of candidates) {
        const addresses = await ask(resolver, candidate);
        if (addresses.length > 0) return addresses;
      }
      throw Object.assign(new Error(`there is no address of ${JSON.stringify(host)}`), { code: "ENOTFOUND" });
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  };
}

/** The addresses of exactly this name; none if it does not exist. */
async function ask(resolver: Resolver, name: string): Promise<readonly Address[]> {
  const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
  const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
  const failure = answers.find(
    (answer) => answer.status === "rejected" && !notThere.has((answer.reason as { code: string }).code),
  ) as PromiseRejectedResult | undefined;
  if (addresses.length === 0 && failure !== undefined) throw failure.reason;
  return addresses.map(addressOf);
}

/** Addresses of a name in the text of a hosts file. @see hosts(5) */
function hostsEntries(text: string, name: string): readonly Address[] {
  return text.split("\n").flatMap((line) => {
    const [address = "", ...names] = line.replace(/#.*/, "").trim().toLowerCase().split(/\s+/);
    return isIP(address) !== 0 && names.includes(name) ? [addressOf(address)] : [];
  });
}

/**
 * The names to try for a name, by the text of a resolv.conf file: the name itself, first if it has at least `ndots` dots, else last, and
 * the name in each search domain. A name that ends with a dot is tried alone.
 *
 * @see resolv.conf(5)
 */
function candidateNames(name: string, text: string): readonly string[] {
  if (name.endsWith(".")) return [name];
  let domains: readonly string[] = [];
  let ndots = 1;
  for (const line of text.split("\n")) {
    const [keyword, ...values] = line.trim().split(/\s+/);
    if (keyword === "search" || keyword === "domain") domains = values;
    const dots = keyword === "options" && values.findLast((option) => /^ndots:\d+$/.test(option));
    if (dots) ndots = Number(dots.slice("ndots:".length));
  }
  const searched = domains.map((domain) => `${name}.${domain.replace(/^\.|\.$/g, "")}.`);
  return name.split(".").length > ndots ? [`${name}.`, ...searched] : [...searched, `${name}.`];
}

/** The text of a file; empty if it cannot be read. */
function textOf(file: string): Promise<string> {
  return readFile(file, "utf8").catch(() => "");
}

function addressOf(address: string): Address {
  return { address, family: isIP(address) };
}
