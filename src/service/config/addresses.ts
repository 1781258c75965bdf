import { type Rule, textThat } from "../../base/options.ts";

/** The configured issuer, else the URL of this machine. */
export function issuerOf(
  { issuer, host }: { readonly issuer?: string | undefined; readonly host: string },
  port: number,
): string {
  return issuer ?? new URL(`http://${urlHost(host)}:${port}`).origin;
}

/** The host for a URL on this machine. */
export function urlHost(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "localhost";
  return host.includes(":") ? `[${host}]` : host;
}

/** As long as the kernel takes. @see unix(7) */
const maxPathBytes = 107;

export const socketPath: Rule<string> = textThat(
  `a path of at most ${maxPathBytes} bytes; an abstract socket (@name) is open to every user`,
  (value) => !/^@|\0/.test(value) && new TextEncoder().encode(value).length <= maxPathBytes,
);

export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

/** Host and port; `undefined` for what is a path, or "off". */
export function hostAndPort(address: string): HostAndPort | undefined {
  const [, host = "", port] = /^([^/]+):(\d{1,5})$/.exec(address) ?? [];
  return port === undefined ? undefined : { host: host.replace(/^\[(.*)\]$/, "$1"), port: Number(port) };
}
