import { ClientError } from "../../base/errors.ts";
import { isLoopback } from "../../base/urls.ts";

const maxLength = 2_048;

/**
 * Refuses a client identifier that cannot be the URL of a metadata document. A URL has one spelling here, the one that `URL` writes, so one
 * client cannot be taken for two, nor two for one.
 *
 * @param allowsLoopback whether http and loopback hosts are accepted
 * @throws ClientError `ERR_CLIENT_ID`
 * @see draft-ietf-oauth-client-id-metadata-document-02 section 3
 */
export function checkClientId(clientId: unknown, allowsLoopback: boolean): URL {
  if (typeof clientId !== "string" || clientId.length > maxLength || !URL.canParse(clientId)) {
    throw invalidId(`is not a URL of at most ${maxLength} characters`);
  }
  const url = new URL(clientId);
  const isLocal = isLoopback(url.hostname);
  if (isLocal && !allowsLoopback) throw invalidId("is on a loopback host, which is accepted only if the issuer is too");
  if (url.protocol !== "https:" && !(isLocal && url.protocol === "http:")) throw invalidId("is not an https URL");
  if (url.username !== "" || url.password !== "") throw invalidId("contains a user name or password");
  if (clientId.includes("#")) throw invalidId("has a fragment");
  if (hasDotSegment(clientId.replace(/\?.*/s, ""))) throw invalidId("has a dot segment");
  if (url.href !== clientId) throw invalidId("is not in canonical form, as `URL` writes it");
  return url;
}

/** Reports whether a path has a dot segment for a server that decodes it first. */
function hasDotSegment(url: string): boolean {
  const decoded = url.replaceAll(/%2e/gi, ".").replaceAll(/%2f|%5c|\\/gi, "/");
  return /\/\.{1,2}(?:\/|$)/.test(decoded);
}

function invalidId(rule: string): ClientError {
  return new ClientError("ERR_CLIENT_ID", `the client identifier ${rule}`);
}
