import { isLoopback } from "../base/urls.ts";
import { isHtml, kindText, urlText } from "./format.ts";
import type { Exchange, Failure, Observations } from "./observations.ts";

/** The response with the set: the first one, or the one for a browser. */
export function setResponse({ set, probes }: Pick<Observations, "set" | "probes">): Exchange | undefined {
  return [set, probes?.browser].find((exchange) => exchange?.body !== undefined && (exchange.status ?? 200) === 200);
}

/** The value of a header field, its lines joined with commas. @see RFC 9110 section 5.2 */
export function field({ headers = [] }: Exchange, name: string): string | undefined {
  const lines = headers.filter(([other]) => other === name).map(([, value]) => value);
  return lines.length === 0 ? undefined : lines.join(", ");
}

/** The URLs of an exchange, from the first to that which answered. */
export const wayOf = ({ redirects = [], url = "" }: Exchange): string => [...redirects, url].map(urlText).join(" → ");

/** The status of a response, and whether a web page came with it. */
export function statusText({ status, body }: Exchange): string {
  const text = new TextDecoder().decode(body);
  return `status ${status}${isHtml(text) ? `, with ${kindText(text)}` : ""}`;
}

const unknownAuthority = /^(UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)/;

/** Why there is no complete response, and what helps where it is a certificate of an own authority. */
export const failureText = ({ kind, detail }: Failure): string =>
  kind === "tls" && unknownAuthority.test(detail)
    ? `${detail}; if the authority is your own, name the file of its certificate in NODE_EXTRA_CA_CERTS`
    : detail;

/** The origin of the page that a probe pretends to be of. */
export const probeOrigin = "https://relying-party.example";

export function sameBytes(one: Uint8Array | undefined, other: Uint8Array | undefined): boolean {
  return (
    one !== undefined &&
    other !== undefined &&
    one.length === other.length &&
    one.every((byte, index) => byte === other[index])
  );
}

/** Whether a URL leads to this machine. */
export const isLocal = (url: string): boolean => URL.canParse(url) && isLoopback(new URL(url).hostname);

/** @see RFC 1918, RFC 6598, RFC 3927, RFC 4193, RFC 4291 section 2.5.6 */
const privateHost =
  /^(10\.|127\.|0\.|169\.254\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|\[(::1?\]|f[cd]|fe[89ab]))|\.(local|internal|localhost|home\.arpa|svc)$|^localhost$/;

/** Whether a URL is not public: a loopback, private or link-local host, or a name that is never in public DNS. */
export function isPrivate(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { hostname } = new URL(url);
  return privateHost.test(hostname) || (!hostname.includes(".") && !hostname.startsWith("["));
}
