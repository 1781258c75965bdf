import { systemClock } from "../../base/clock.ts";
import { discoveryDocument } from "../../publish/discovery.ts";
import { type Document, makeDocument } from "../../publish/document.ts";
import { type JwkSet, type JwkSetDocument, documentAt } from "../../publish/jwk-set.ts";
import { locate } from "../../publish/paths.ts";
import type { Site } from "../../publish/publisher.ts";
import { cacheControl, contentTypes, discoveryCacheControl } from "../../publish/respond.ts";

/** One document, byte for byte as `jwksd serve` answers it. */
export interface StaticDocument {
  /** Below the issuer: `jwks`, `.well-known/openid-configuration`, `.well-known/oauth-authorization-server`. */
  readonly path: string;
  readonly body: Uint8Array;
  readonly contentType: string;
  readonly cacheControl: string;
}

/** What there is to publish: the JWK Set first, because the discovery document leads to it. */
export interface DocumentSet {
  readonly documents: readonly StaticDocument[];
  /** Of the JWK Set. */
  readonly kids: readonly string[];
  /** Whether the short Cache-Control of the rotation mode is sent. */
  readonly isShort: boolean;
}

/** A site of a known issuer. */
export interface TargetSite extends Site {
  readonly issuer: string;
}

/**
 * The paths of the documents below the issuer, in the order in which they are published. The metadata of an issuer with a path is also asked
 * for at paths that are not below the issuer; a server must answer them with the same document.
 *
 * @see RFC 8414 section 3.1
 */
export function pathsOf(site: TargetSite): readonly string[] {
  const { jwksUri, metadataPaths } = locate(site);
  const base = new URL(baseOf(site.issuer)).pathname;
  const below = metadataPaths.filter((asked) => asked.startsWith(base));
  return [new URL(jwksUri).pathname, ...below].map((path) => path.slice(base.length));
}

/** All URLs at which clients ask for the documents. */
export function urlsOf(site: TargetSite): readonly string[] {
  const { jwksUri, metadataPaths } = locate(site);
  return [jwksUri, ...metadataPaths.map((path) => new URL(path, site.issuer).href)];
}

/** The URL under which the documents are, with a slash at its end. */
export const baseOf = (issuer: string): string => issuer.replace(/\/?$/, "/");

/** The documents of a set, as they are now. @throws ConfigError see `createPublisher` */
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
