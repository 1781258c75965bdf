import { ConfigError } from "../base/errors.ts";
import { isLoopback, wellKnownPath } from "../base/urls.ts";

/** The documents of a provider. */
export type DocumentName = "jwks" | "discovery";

/** From which the URLs of the documents follow. */
export interface Place {
  readonly issuer?: string | undefined;
  /** Path between the issuer and the endpoints. Default: none. */
  readonly mountPrefix?: string | undefined;
  /** Default: `/jwks`. */
  readonly jwksPath?: string | undefined;
  /** Whether there is a discovery document. Default: `true`. */
  readonly discovery?: boolean | undefined;
}

/** Where the documents are. */
export interface Locations {
  readonly issuer: string;
  readonly jwksUri: string;
  /** Where clients look for the metadata, on the host of the issuer: below the issuer first. */
  readonly metadataPaths: readonly string[];
  /** Document by request path. */
  readonly routes: ReadonlyMap<string, DocumentName>;
}

/**
 * Derives the paths of the documents from issuer, mount prefix and endpoint path.
 *
 * A request must have one of these paths: the public one (issuer path + mount prefix + endpoint path), the one without the issuer path, and
 * the endpoint path alone, because proxies and frameworks strip prefixes, and a handler cannot know. Any other suffix would answer paths that nobody
 * configured. An application with another document at its own `/jwks` passes on only requests below its mount prefix. The metadata is also
 * where RFC 8414 puts it: the well-known part comes before the path of the issuer there, so no prefix is stripped.
 *
 * @throws ConfigError `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`, `ERR_PATH_CLASH`
 * @see OpenID Connect Discovery 1.0 section 4.1; RFC 8414 sections 3 and 5
 */
export function locate({ issuer, mountPrefix = "/", jwksPath = "/jwks", discovery = true }: Place): Locations {
  const issuerUrl = checkIssuer(issuer);
  // Issuer and prefix may end in a slash; between two parts there is one.
  const base = issuerUrl.text.replace(/\/$/, "");
  const issuerPath = issuerUrl.path.replace(/\/$/, "");
  const prefix = checkPath("mountPrefix", mountPrefix.replace(/(?<=[^/])\/$/, "")).replace(/^\/$/, "");
  const jwks = checkPath("endpoints.jwks", jwksPath);
  if (jwks === "/")
    throw new ConfigError(
      "ERR_PATH_INVALID",
      'endpoints.jwks is "/"; the JWK Set needs a path of its own, such as "/jwks"',
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
        "ERR_PATH_CLASH",
        `endpoints.jwks puts the JWK Set at "${path}", where the discovery document is`,
      );
    }
    routes.set(path, "jwks");
  }
  return { issuer: issuerUrl.text, jwksUri: base + prefix + jwks, metadataPaths, routes };
}

function checkIssuer(issuer: string | undefined): { text: string; path: string } {
  const invalid = (rule: string): ConfigError =>
    // The text before an "@" may be a password.
    new ConfigError(
      "ERR_ISSUER_INVALID",
      `${issuer?.includes("@") ? "the issuer" : `issuer ${JSON.stringify(issuer)}`} ${rule}`,
    );
  if (issuer === undefined)
    throw new ConfigError(
      "ERR_ISSUER_INVALID",
      "issuer is missing; it is the https URL by which relying parties know the provider",
    );
  const url = URL.canParse(issuer) ? new URL(issuer) : undefined;
  if (url === undefined) throw invalid("is not a URL; write it like https://login.example.com");
  if (url.username !== "" || url.password !== "") throw invalid("has a user name or password; write it without");
  if (url.protocol !== "https:" && !(url.protocol === "http:" && isLoopback(url.hostname)))
    throw invalid("is not an https URL (http is accepted for loopback hosts only)");
  if (/[?#]/.test(issuer)) throw invalid("has a query or fragment (OpenID Connect Discovery 1.0 section 3)");
  if (url.pathname !== "/") checkPath("the path of the issuer", url.pathname.replace(/(?<=[^/])\/$/, ""));
  // Relying parties compare issuers as strings, so there must be one spelling: that of URL parsers.
  const canonical = url.pathname === "/" && !issuer.endsWith("/") ? url.origin : url.href;
  if (issuer !== canonical) throw invalid(`is not in canonical form; write "${canonical}"`);
  return { text: issuer, path: url.pathname };
}

// pchar of RFC 3986 section 3.3, and the slash. No percent-encoding: some proxies decode it and some do not.
const plainPath = /^[A-Za-z0-9\-._~!$&'()*+,;=:@/]*$/;

/** Refuses all but plain absolute paths. @throws ConfigError `ERR_PATH_INVALID` */
function checkPath(name: string, path: string): string {
  const invalid = (rule: string): ConfigError =>
    new ConfigError("ERR_PATH_INVALID", `${name} ${JSON.stringify(path)} ${rule}`);
  if (!path.startsWith("/")) throw invalid('is not absolute; it must start with "/"');
  if (/[?#]/.test(path)) throw invalid("has a query or fragment");
  if (!plainPath.test(path)) throw invalid("holds characters that a URL path would have to escape");
  const segments = path.slice(1).split("/");
  if (segments.some((segment) => segment === "." || segment === "..")) throw invalid("has a dot segment");
  if (path !== "/" && segments.includes("")) throw invalid("has an empty segment");
  return path;
}
