import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { isIP } from "node:net";

/** An address of a host. */
export interface Address {
  readonly address: string;
  /** 4 or 6. */
  readonly family: number;
}

/** Where names are looked up; the defaults are those of the system. */
interface Sources {
  readonly hostsFile?: string;
  readonly resolverFile?: string;
  /** Name servers, as `dns.setServers` takes them. */
  readonly servers?: readonly string[];
}

const systemHostsFile =
  process.platform === "win32" ? `${process.env["SystemRoot"]}\\System32\\drivers\\etc\\hosts` : "/etc/hosts";
/** For one name; a caller that has no signal waits no longer. */
const timeoutMs = 2_000;
const tries = 2;
const notThere = new Set(["ENOTFOUND", "ENODATA"]);

/**
 * Makes a lookup of all addresses of a host name: in the hosts file, else by DNS under the search rules of resolv.conf(5), as
 * `hosts: files dns` in nsswitch.conf(5) means. Unlike `dns.lookup` it takes no thread of the pool, which files, databases and every
 * other lookup need as well, and it ends with its signal.
 *
 * It rejects with the reason of the signal, or with an error of `node:dns`.
 */
export function createHostLookup({
  hostsFile = systemHostsFile,
  resolverFile = "/etc/resolv.conf",
  servers,
}: Sources = {}) {
  return async (host: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<readonly Address[]> => {
    const name = host.toLowerCase();
    // Never asked of DNS. RFC 6761 section 6.3
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

/** The addresses of exactly this name; none when there is no such name. */
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
 * The names that a name may stand for, by the text of a resolv.conf file: itself first if it has as many dots as `ndots` says, else
 * last; and itself alone if it ends with a dot.
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

/** A file that is not there, or not for this process, says nothing. */
function textOf(file: string): Promise<string> {
  return readFile(file, "utf8").catch(() => "");
}

function addressOf(address: string): Address {
  return { address, family: isIP(address) };
}
