import type { HttpExchange, Failure, Observations } from "./observations.ts";
import { isHtml, kindText, urlText } from "./value-text.ts";

/**
 * Returns the response that contains the set: the response to the first request or, if that request was refused, to a
 * browser's request.
 */
export function setResponse({ set, probes }: Pick<Observations, "set" | "probes">): HttpExchange | undefined {
  return [set, probes?.browser].find((exchange) => exchange?.body !== undefined && (exchange.status ?? 200) === 200);
}

/** Returns a header's value, with repeated lines joined by commas. @see RFC 9110 section 5.2 */
export function field({ headers = [] }: HttpExchange, name: string): string | undefined {
  const lines = headers.filter(([other]) => other === name).map(([, value]) => value);
  return lines.length === 0 ? undefined : lines.join(", ");
}

/** Returns all URLs in an exchange, from the first one to the one that responded. */
export const wayOf = ({ redirects = [], url = "" }: HttpExchange): string =>
  [...redirects, url].map(urlText).join(" → ");

/** Describes a response's status, and notes if the body is a web page. */
export function statusText({ status, body }: HttpExchange): string {
  const text = new TextDecoder().decode(body);
  return `status ${status}${isHtml(text) ? `, with ${kindText(text)}` : ""}`;
}

const unknownAuthority = /^(UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)/;

/** Describes why there is no complete response. Includes the remedy for a private certificate authority. */
export const failureText = ({ kind, detail }: Failure): string =>
  kind === "tls" && unknownAuthority.test(detail)
    ? `${detail}; if you run this certificate authority, set NODE_EXTRA_CA_CERTS to the path of its certificate file`
    : detail;

/** The `Origin` that a probe sends, as a web page would. */
export const probeOrigin = "https://relying-party.example";

export function sameBytes(one: Uint8Array | undefined, other: Uint8Array | undefined): boolean {
  return (
    one !== undefined &&
    other !== undefined &&
    one.length === other.length &&
    one.every((byte, index) => byte === other[index])
  );
}

/** @see RFC 1918, RFC 6598, RFC 3927, RFC 4193, RFC 4291 section 2.5.6 */
const privateHost =
  /^(10\.|127\.|0\.|169\.254\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|\[(::1?\]|f[cd]|fe[89ab]))|\.(local|internal|localhost|home\.arpa|svc)$|^localhost$/;

/**
 * Reports whether a URL is not public, because its host is loopback, private or link-local, or is a name that is never
 * in public DNS.
 */
export function isPrivate(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { hostname } = new URL(url);
  return privateHost.test(hostname) || (!hostname.includes(".") && !hostname.startsWith("["));
}
