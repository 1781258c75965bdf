import { isLoopback } from "./urls.ts";

/** The parts of a request that determine whether to serve it on an address that is reserved for this machine. */
export interface LocalRequest {
  readonly path: string;
  /** Header fields by lower-case name. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The local address at which the request arrived. */
  readonly localAddress?: string | undefined;
}

/** Paths that orchestrators probe using a pod's or machine's IP address. */
const probes: ReadonlySet<string> = new Set(["/livez", "/readyz"]);

/**
 * Returns the status for a request that must not be served on an address reserved for this machine: 421 if `Host` names
 * another machine, as in a DNS rebinding attack, or 403 if another website made the request. Links to the page at `/`
 * work from anywhere, because the linking site learns nothing.
 *
 * @param listenHost host name or IP address that the server listens on
 * @see RFC 9110 section 7.4 (misdirected requests); Fetch Metadata Request Headers; RFC 6454 (Origin)
 */
export function refusalOf(request: LocalRequest, listenHost: string): 403 | 421 | undefined {
  const { host, origin, "sec-fetch-site": site } = request.headers;
  if (typeof host === "string" && !isOwnHost(host, request, listenHost)) return 421;
  if (origin !== undefined && origin !== `http://${String(host)}`) return 403;
  const isOwn = site === undefined || site === "same-origin" || site === "none";
  return isOwn || isFollowedLink(request) ? undefined : 403;
}

function isOwnHost(host: string, { path, localAddress = "" }: LocalRequest, listenHost: string): boolean {
  const name = hostName(host);
  if (probes.has(path) && (host === "" || isAddress(name ?? ""))) return true;
  if (name === undefined) return false;
  return isLoopback(name) || [listenHost, localAddress].some((own) => hostName(asHost(own)) === name);
}

function isFollowedLink({ path, headers }: LocalRequest): boolean {
  return path === "/" && headers["sec-fetch-mode"] === "navigate" && headers["sec-fetch-dest"] === "document";
}

/** Returns the host in a `Host` field, without the port and spelled as in URLs. */
function hostName(host: string): string | undefined {
  return URL.canParse(`http://${host}`) ? new URL(`http://${host}`).hostname.replace(/\.$/, "") : undefined;
}

/** Reports whether a host, spelled as in URLs, is an IP address. @see URL Standard, host serializing */
const isAddress = (name: string): boolean => name.startsWith("[") || /^\d+(\.\d+){3}$/.test(name);

/** Returns a name or address as spelled in URLs. A socket may report an IPv4 address as IPv6. */
function asHost(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "");
  return plain.includes(":") && !plain.startsWith("[") ? `[${plain}]` : plain;
}
