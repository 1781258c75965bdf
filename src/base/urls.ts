const loopback = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/;

/** Reports whether a host name, as spelled by `URL`, always refers to this machine. @see RFC 6761 section 6.3 */
export const isLoopback = (hostname: string): boolean => loopback.test(hostname);

/** Reports whether a string is the URL of a server on this machine. */
export const isLoopbackUrl = (url: string): boolean => URL.canParse(url) && isLoopback(new URL(url).hostname);

/** Formats a URL for a message. Escapes it and omits the query, which may contain a secret. */
export function shownUrl(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

/** Returns the path of a request target, without the query, scheme or authority. @see RFC 9112 section 3.2 */
export function targetPath(target: string): string {
  const start = target.startsWith("/") ? 0 : (/^[a-z][a-z0-9+.-]*:\/\/[^/?]*/i.exec(target)?.[0].length ?? 0);
  const end = target.indexOf("?", start);
  return end === -1 ? (start === 0 ? target : target.slice(start)) : target.slice(start, end);
}

/** A metadata document. @see OpenID Connect Discovery 1.0 section 4; RFC 8414 section 3; RFC 9728 section 3 */
export type WellKnown = "openid-configuration" | "oauth-authorization-server" | "oauth-protected-resource";

/**
 * Returns the path at which a host serves a document. It ends with the path of the issuer or resource.
 *
 * @see RFC 8414 section 3.1; RFC 9728 section 3.1
 */
export const wellKnownPath = (name: WellKnown, path = ""): string => `/.well-known/${name}${path}`;

/** Returns the URL of an issuer's or a resource's document. It ends with the path of the issuer or resource. */
export function wellKnownUrl(url: string, name: WellKnown): string {
  const { origin, path } = originAndPath(url);
  return origin + wellKnownPath(name, path);
}

/**
 * Returns the URL of an issuer's OpenID discovery document. It starts with the issuer.
 *
 * @see OpenID Connect Discovery 1.0 section 4
 */
export function discoveryUrl(issuer: string): string {
  const { origin, path } = originAndPath(issuer);
  return origin + path + wellKnownPath("openid-configuration");
}

/** Matches the part of a metadata URL that does not come from the issuer. */
export const metadataPart = /\/\.well-known\/(?:openid-configuration|oauth-authorization-server)/;

function originAndPath(url: string): { readonly origin: string; readonly path: string } {
  const { origin, pathname } = new URL(url);
  return { origin, path: pathname.replace(/\/$/, "") };
}
