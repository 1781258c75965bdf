import { ClientDocumentError } from "../../base/errors.ts";
import { isLoopback } from "../../base/urls.ts";

const maxLength = 2_048;

/**
 * Returns a client identifier. Rejects an identifier that cannot be the URL of a metadata document.
 *
 * @param allowsLoopback whether http and loopback hosts are accepted
 * @throws ClientDocumentError `ERR_CLIENT_ID`
 * @see draft-ietf-oauth-client-id-metadata-document-02 section 3
 */
export function checkClientId(clientId: unknown, allowsLoopback: boolean): string {
  const problem = urlProblem(clientId, allowsLoopback);
  if (problem !== undefined) throw new ClientDocumentError("ERR_CLIENT_ID", `the client identifier ${problem}`);
  return clientId as string;
}

/**
 * Describes what is wrong with a URL that a client chose. Returns `undefined` if the URL may be fetched. Only the
 * spelling that `URL` produces is accepted, so that one client cannot be mistaken for two, or two for one.
 */
export function urlProblem(value: unknown, allowsLoopback: boolean): string | undefined {
  if (typeof value !== "string" || value.length > maxLength || !URL.canParse(value))
    return `is not a URL of at most ${maxLength} characters`;
  const { protocol, hostname, username, password, href } = new URL(value);
  const isLocal = isLoopback(hostname);
  if (isLocal && !allowsLoopback) return "is on a loopback host, which is accepted only for development";
  if (protocol !== "https:" && !(isLocal && protocol === "http:")) return "is not an https URL";
  if (username !== "" || password !== "") return "contains a user name or password";
  if (value.includes("#")) return "has a fragment";
  if (hostname.endsWith(".")) return "has a dot after its host name, which is just another way to write the same host";
  if (hasDotSegment(value.replace(/\?.*/s, ""))) return "has a dot segment";
  return href === value ? undefined : "is not in the canonical form that `URL` produces";
}

/** Reports whether a path has a dot segment after a server has decoded it. */
function hasDotSegment(url: string): boolean {
  const decoded = url.replaceAll(/%2e/gi, ".").replaceAll(/%2f|%5c|\\/gi, "/");
  return /\/\.{1,2}(?:\/|$)/.test(decoded);
}
