import { cacheControl } from "../../base/cache-control.ts";
import { systemClock } from "../../base/clock.ts";
import { discoveryDocument } from "../../publish/discovery.ts";
import { locate } from "../../publish/document-paths.ts";
import { type Document, makeDocument } from "../../publish/document.ts";
import { type JwkSet, type JwkSetDocument, documentAt } from "../../publish/jwk-set.ts";
import type { Site } from "../../publish/publisher.ts";
import { contentTypes, discoveryCacheControl } from "../../publish/respond.ts";

/** A document, byte for byte as `jwksd serve` serves it. */
export interface StaticDocument {
  /** Path below the issuer: `jwks`, `.well-known/openid-configuration`, `.well-known/oauth-authorization-server`. */
  readonly path: string;
  readonly body: Uint8Array;
  readonly contentType: string;
  readonly cacheControl: string;
}

/** The documents to publish. The JWK Set comes first, because the discovery document points to it. */
export interface DocumentSet {
  readonly documents: readonly StaticDocument[];
  /** The kids in the JWK Set. */
  readonly kids: readonly string[];
  /** Whether the documents have the short Cache-Control header for rotation mode. */
  readonly isShort: boolean;
}

/** A site whose issuer is known. */
export interface TargetSite extends Site {
  readonly issuer: string;
}

/**
 * Returns the documents' paths below the issuer, in the order in which they are published. If the issuer has a path,
 * clients also request its metadata at paths that are not below the issuer; the web server must serve the same document
 * there.
 *
 * @see RFC 8414 section 3.1
 */
export function pathsOf(site: TargetSite): readonly string[] {
  const { jwksUri, metadataPaths } = locate(site);
  const base = new URL(baseOf(site.issuer)).pathname;
  const below = metadataPaths.filter((path) => path.startsWith(base));
  return [new URL(jwksUri).pathname, ...below].map((path) => path.slice(base.length));
}

/** Returns every URL at which clients request the documents. */
export function urlsOf(site: TargetSite): readonly string[] {
  const { jwksUri, metadataPaths } = locate(site);
  return [jwksUri, ...metadataPaths.map((path) => new URL(path, site.issuer).href)];
}

/** Returns the base URL of the documents, with a trailing slash. */
export const baseOf = (issuer: string): string => issuer.replace(/\/?$/, "/");

/**
 * Creates the current documents for a set.
 *
 * @throws ConfigError, for the same reasons as `createPublisher`
 */
export async function documentSetOf(set: JwkSet, site: TargetSite, isShort: boolean): Promise<DocumentSet> {
  const [jwksPath, ...discoveryPaths] = pathsOf(site);
  const jwks = documentAt(set.documents, systemClock) as JwkSetDocument;
  const mode = isShort ? "rotation" : "long";
  const discovery = await makeDocument(discoveryDocument(site));
  return {
    documents: [
      fileOf(jwksPath as string, jwks, contentTypes.jwks, cacheControl[mode]),
      ...discoveryPaths.map((path) => fileOf(path, discovery, contentTypes.discovery, discoveryCacheControl)),
    ],
    kids: jwks.keys.map(({ kid }) => kid),
    isShort,
  };
}

const fileOf = (path: string, { text }: Document, contentType: string, cacheControl: string): StaticDocument => ({
  path,
  body: Buffer.from(text),
  contentType,
  cacheControl,
});
