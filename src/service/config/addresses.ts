import { type Rule, stringThat } from "../../base/options.ts";
import { isLoopback } from "../../base/urls.ts";

/** Returns the configured issuer or, if there is none, the service's URL on this machine. */
export function issuerOf(
  { issuer, host }: { readonly issuer?: string | undefined; readonly host: string },
  port: number,
): string {
  return issuer ?? new URL(`http://${urlHost(host)}:${port}`).origin;
}

/** Returns the host for a URL on this machine. */
export function urlHost(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "localhost";
  return host.includes(":") ? `[${host}]` : host;
}

/** Maximum length of a socket path that the kernel accepts, in bytes. @see unix(7) */
const maxPathBytes = 107;

/** Rule for the path of a Unix socket. */
export const socketPath: Rule<string> = stringThat(
  `a path of at most ${maxPathBytes} bytes, not an abstract socket (@name), which is open to every user`,
  (value) => !/^@|\0/.test(value) && new TextEncoder().encode(value).length <= maxPathBytes,
);

export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

/** Reports whether an address can be reached only from this machine. */
export const isLoopbackAddress = ({ host }: HostAndPort): boolean =>
  isLoopback(host.includes(":") ? `[${host}]` : host);

/** Returns the host and port of an address, or `undefined` if it is a path or "off". */
export function hostAndPort(address: string): HostAndPort | undefined {
  const [, host = "", port] = /^([^/]+):(\d{1,5})$/.exec(address) ?? [];
  return port === undefined ? undefined : { host: host.replace(/^\[(.*)\]$/, "$1"), port: Number(port) };
}
