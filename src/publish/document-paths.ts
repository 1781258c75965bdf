import { ConfigError } from "../base/errors.ts";
import { isLoopback, wellKnownPath } from "../base/urls.ts";

/** The names of a provider's documents. */
export type DocumentName = "jwks" | "discovery";

/** The options from which the documents' URLs are derived. */
export interface Place {
  readonly issuer?: string | undefined;
  /** Path between the issuer and the endpoints. Default: none. */
  readonly mountPrefix?: string | undefined;
  /** Path of the JWK Set. Default: `/jwks`. */
  readonly jwksPath?: string | undefined;
  /** Whether there is a discovery document. Default: `true`. */
  readonly discovery?: boolean | undefined;
}

/** The documents' locations. */
export interface Locations {
  readonly issuer: string;
  readonly jwksUri: string;
  /** Paths on the issuer's host at which clients request the metadata. The first one is the path below the issuer. */
  readonly metadataPaths: readonly string[];
  /** Document for each request path. */
  readonly routes: ReadonlyMap<string, DocumentName>;
}

/**
 * Derives the documents' paths from the issuer, the mount prefix and the endpoint path.
 *
 * A document is served at its public path (issuer path + mount prefix + endpoint path), at that path without the issuer
 * path, and at the endpoint path alone, because proxies and frameworks strip prefixes without the handler's knowledge.
 * Matching any other suffix would serve paths that are not configured. An application that has a different document at
 * its own `/jwks` should forward only requests below its mount prefix. The metadata is also served at the path that RFC
 * 8414 defines, in which the well-known part precedes the issuer's path, so no prefix can be stripped.
 *
 * @throws ConfigError `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`
 * @see OpenID Connect Discovery 1.0 section 4.1; RFC 8414 sections 3 and 5
 */
export function locate({ issuer, mountPrefix = "/", jwksPath = "/jwks", discovery = true }: Place): Locations {
  const issuerUrl = checkIssuer(issuer);
  // The issuer and the prefix may end with a slash. The parts are always joined with exactly one slash.
  const base = issuerUrl.text.replace(/\/$/, "");
  const issuerPath = issuerUrl.path.replace(/\/$/, "");
  const prefix = checkPath("mountPrefix", mountPrefix.replace(/(?<=[^/])\/$/, "")).replace(/^\/$/, "");
  const jwks = checkPath("endpoints.jwks", jwksPath);
  if (jwks === "/")
    throw new ConfigError(
      "ERR_PATH_INVALID",
      'endpoints.jwks must not be "/"; set it to a separate path, such as "/jwks"',
    );

  const routes = new Map<string, DocumentName>();
  const discoveryPath = wellKnownPath("openid-configuration");
  const metadataPaths = discovery
    ? [
        ...new Set([
          issuerPath + discoveryPath,
          wellKnownPath("openid-configuration", issuerPath),
          wellKnownPath("oauth-authorization-server", issuerPath),
        ]),
      ]
    : [];
  for (const path of discovery ? [...metadataPaths, discoveryPath] : []) routes.set(path, "discovery");
  for (const path of [issuerPath + prefix + jwks, prefix + jwks, jwks]) {
    if (routes.get(path) === "discovery") {
      throw new ConfigError(
        "ERR_PATH_INVALID",
        `endpoints.jwks must not be "${path}", because that is the path of the discovery document`,
      );
    }
    routes.set(path, "jwks");
  }
  return { issuer: issuerUrl.text, jwksUri: base + prefix + jwks, metadataPaths, routes };
}

function checkIssuer(issuer: string | undefined): { text: string; path: string } {
  const invalid = (rule: string): ConfigError =>
    // The part before an "@" may be a password.
    new ConfigError(
      "ERR_ISSUER_INVALID",
      `${issuer?.includes("@") ? "the issuer" : `issuer ${JSON.stringify(issuer)}`} ${rule}`,
    );
  if (issuer === undefined)
    throw new ConfigError(
      "ERR_ISSUER_INVALID",
      "the issuer is missing; set it to the https URL that identifies the provider to relying parties",
    );
  const url = URL.canParse(issuer) ? new URL(issuer) : undefined;
  if (url === undefined) throw invalid("is not a URL; use a URL such as https://login.example.com");
  if (url.username !== "" || url.password !== "") throw invalid("contains a user name or password; remove it");
  if (url.protocol !== "https:" && !(url.protocol === "http:" && isLoopback(url.hostname)))
    throw invalid("is not an https URL (http is accepted for loopback hosts only)");
  if (/[?#]/.test(issuer)) throw invalid("has a query or fragment; remove it (OpenID Connect Discovery 1.0 section 3)");
  if (url.pathname !== "/") checkPath("the issuer's path", url.pathname.replace(/(?<=[^/])\/$/, ""));
  // Relying parties compare issuers as strings, so only the spelling that URL parsers produce is accepted.
  const canonical = url.pathname === "/" && !issuer.endsWith("/") ? url.origin : url.href;
  if (issuer !== canonical) throw invalid(`is not in canonical form; write "${canonical}"`);
  return { text: issuer, path: url.pathname };
}

// RFC 3986 section 3.3: pchar and the slash. Percent-encoding is excluded, because some proxies decode it and others do
// not.
const plainPath = /^[A-Za-z0-9\-._~!$&'()*+,;=:@/]*$/;

/** Rejects everything except plain absolute paths. @throws ConfigError `ERR_PATH_INVALID` */
function checkPath(name: string, path: string): string {
  const invalid = (rule: string): ConfigError =>
    new ConfigError("ERR_PATH_INVALID", `${name} ${JSON.stringify(path)} ${rule}`);
  if (!path.startsWith("/")) throw invalid('is not absolute; it must start with "/"');
  if (/[?#]/.test(path)) throw invalid("has a query or fragment; remove it");
  if (!plainPath.test(path))
    throw invalid("contains characters that would have to be escaped in a URL path; remove them");
  const segments = path.slice(1).split("/");
  if (segments.some((segment) => segment === "." || segment === "..")) throw invalid("has a dot segment; remove it");
  if (path !== "/" && segments.includes("")) throw invalid("has an empty segment; remove it");
  return path;
}
