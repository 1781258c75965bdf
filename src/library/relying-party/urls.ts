import { FetchError } from "../../base/errors.ts";
import { isLoopback } from "../../base/urls.ts";

/**
 * Refuses a URL over which an attacker on the network could replace keys.
 *
 * @throws FetchError `ERR_URL_INSECURE`
 */
export function checkSecureUrl(url: unknown, what: string, allowInsecure: boolean): string {
  const parsed = typeof url === "string" && URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined) throw new FetchError("ERR_URL_INSECURE", `${what} is not a URL`);
  const isHttp = parsed.protocol === "http:" && (allowInsecure || isLoopback(parsed.hostname));
  if (parsed.protocol !== "https:" && !isHttp) {
    throw new FetchError(
      "ERR_URL_INSECURE",
      `${what} is not an https URL (http is accepted for loopback hosts, or with allowInsecure)`,
    );
  }
  if (parsed.username !== "" || parsed.password !== "")
    throw new FetchError("ERR_URL_INSECURE", `${what} holds a password`);
  return url as string;
}

/** An issuer for a message, in its own spelling: encoded, cut at 256 characters, and without a query. */
export function shownIssuer(issuer: unknown): string {
  if (typeof issuer !== "string") return "none";
  return `"${encodeURI(
    issuer
      .replace(/[?#].*/s, "")
      .slice(0, 256)
      .toWellFormed(),
  )}"`;
}
