import { isIP } from "node:net";
import { type Reply, problem } from "../../publish/respond.ts";
import { isLoopback } from "../../base/urls.ts";

/** The part of a request that decides on its access. */
export interface AdminRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The address of this machine to which the request came. */
  readonly localAddress?: string | undefined;
}

/** Paths that orchestrators ask for, by the address of a pod or machine. */
const probes: ReadonlySet<string> = new Set(["/livez", "/readyz"]);

const foreignHost = problem(
  421,
  "Misdirected Request",
  "The admin address answers to localhost and to the address on which it listens, and to no other name. From another machine, forward a port: ssh -L 9901:127.0.0.1:9901 HOST",
).get;
const crossSite = problem(403, "Forbidden", "The admin address answers no requests that other web sites make.").get;

/**
 * Why a request is refused: its `Host` names another machine, as after DNS rebinding, or another web site has made it. A link to the page
 * may be followed from anywhere: the site with the link learns nothing.
 *
 * @param listenHost the host of the admin address
 * @see RFC 9110 section 7.4 (misdirected requests); Fetch Metadata Request Headers; RFC 6454 (Origin)
 */
export function refusalOf(request: AdminRequest, listenHost: string): Reply | undefined {
  const { host, origin, "sec-fetch-site": site } = request.headers;
  if (typeof host === "string" && !isOwnHost(host, request, listenHost)) return foreignHost;
  if (origin !== undefined && origin !== `http://${String(host)}`) return crossSite;
  const isOwn = site === undefined || site === "same-origin" || site === "none";
  return isOwn || isFollowedLink(request) ? undefined : crossSite;
}

function isOwnHost(host: string, { path, localAddress = "" }: AdminRequest, listenHost: string): boolean {
  const name = hostName(host);
  const isAddress = name?.startsWith("[") === true || isIP(name ?? "") !== 0;
  if (probes.has(path) && (host === "" || isAddress)) return true;
  if (name === undefined) return false;
  const own = [isIP(listenHost) === 6 ? `[${listenHost}]` : listenHost, addressHost(localAddress)];
  return isLoopback(name) || own.some((host) => hostName(host) === name);
}

function isFollowedLink({ path, headers }: AdminRequest): boolean {
  return path === "/" && headers["sec-fetch-mode"] === "navigate" && headers["sec-fetch-dest"] === "document";
}

/** The host of a `Host` field as URLs spell it, without its port. */
function hostName(host: string): string | undefined {
  return URL.canParse(`http://${host}`) ? new URL(`http://${host}`).hostname.replace(/\.$/, "") : undefined;
}

/** An address of a socket as a host: an IPv4 address may come as IPv6. */
function addressHost(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "");
  return isIP(plain) === 6 ? `[${plain}]` : plain;
}
