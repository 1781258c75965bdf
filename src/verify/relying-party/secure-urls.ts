import { FetchError, invalidOption } from "../../base/errors.ts";
import { isLoopback } from "../../base/urls.ts";

/** Maximum length of a URL. It is limited because servers can choose URLs, and jwksd stores them. */
const maxUrlLength = 2_048;

/**
 * Rejects a URL if an attacker on the network could replace keys that are fetched from it.
 *
 * @throws FetchError `ERR_URL_INSECURE`
 */
export function checkSecureUrl(url: unknown, what: string, allowInsecure: boolean): string {
  if (typeof url !== "string" || !URL.canParse(url)) throw new FetchError("ERR_URL_INSECURE", `${what} is not a URL`);
  if (url.length > maxUrlLength)
    throw new FetchError("ERR_URL_INSECURE", `${what} has more than ${maxUrlLength} characters`);
  const parsed = new URL(url);
  const isHttp = parsed.protocol === "http:" && (allowInsecure || isLoopback(parsed.hostname));
  if (parsed.protocol !== "https:" && !isHttp) {
    throw new FetchError(
      "ERR_URL_INSECURE",
      `${what} is not an https URL (http is accepted for loopback hosts, or with allowInsecure)`,
    );
  }
  if (parsed.username !== "" || parsed.password !== "")
    throw new FetchError("ERR_URL_INSECURE", `${what} contains a password; remove it`);
  return url;
}

/**
 * Rejects an issuer that no provider can have.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 * @see OpenID Connect Discovery 1.0 section 3
 */
export function checkIssuer(issuer: string): void {
  if (/[?#]/.test(issuer)) throw invalidOption(`issuer ${shownIssuer(issuer)} has a query or fragment; remove it`);
  // URL parsers remove or escape these characters, so jwksd would get keys for the issuer, but no token could contain
  // it.
  if (/[\s\p{Cc}\p{Cf}]/u.test(issuer))
    throw invalidOption(
      `issuer ${shownIssuer(issuer)} contains a space, line break or other invisible character; remove it`,
    );
}

/**
 * Formats an issuer for a message. Encodes it, removes its query and truncates it to 256 characters, but otherwise
 * keeps its spelling.
 */
export function shownIssuer(issuer: unknown): string {
  if (typeof issuer !== "string") return "none";
  return `"${encodeURI(
    issuer
      .replace(/[?#].*/s, "")
      .slice(0, 256)
      .toWellFormed(),
  )}"`;
}
