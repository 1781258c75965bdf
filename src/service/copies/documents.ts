import { systemClock } from "../../base/clock.ts";
import { type Document, makeDocument } from "../../keys/keyset/document.ts";
import { type JwkSet, type JwkSetDocument, documentAt } from "../../keys/keyset/jwk-set.ts";
import { cacheControl, contentTypes, discoveryCacheControl } from "../../library/http/respond.ts";
import { discoveryDocument } from "../../library/provider/discovery.ts";
import { locate } from "../../library/provider/paths.ts";
import type { Site } from "../../library/provider/publisher.ts";

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
export interface CopiedSite extends Site {
  readonly issuer: string;
}

/** The paths of the documents below the issuer, in the order in which they are published. */
export const pathsOf = (site: CopiedSite): readonly string[] => documentPaths(site).map(({ path }) => path);

/** The path of a document below the issuer, and the paths at which clients ask the host for it. */
interface DocumentPath {
  readonly path: string;
  readonly asked: readonly string[];
}

/**
 * The metadata of an issuer with a path is also asked for at paths that are not below the issuer, which a server can answer with the same
 * document. Where the issuer has no path, each of its paths is below it, and is a document.
 *
 * @see RFC 8414 section 3.1
 */
export function documentPaths(site: CopiedSite): readonly [DocumentPath, ...DocumentPath[]] {
  const { jwksUri, metadataPaths } = locate(site);
  const base = new URL(baseOf(site.issuer)).pathname;
  const below = metadataPaths.filter((asked) => asked.startsWith(base));
  const beside = metadataPaths.filter((asked) => !asked.startsWith(base));
  const jwks = new URL(jwksUri).pathname;
  return [
    { path: jwks.slice(base.length), asked: [jwks] },
    ...below.map((asked) => ({ path: asked.slice(base.length), asked: [asked, ...beside] })),
  ];
}

/** The URL under which the documents are, with a slash at its end. */
export const baseOf = (issuer: string): string => issuer.replace(/\/?$/, "/");

/** The documents of a set, as they are now. @throws ConfigError see `createPublisher` */
export async function documentSetOf(set: JwkSet, site: CopiedSite, isShort: boolean): Promise<DocumentSet> {
  const [jwksPath, ...discoveryPaths] = documentPaths(site).map(({ path }) => path);
  const jwks = documentAt(set.documents, systemClock) as JwkSetDocument;
  const mode = isShort ? "rotation" : "long";
  const discovery = discoveryPaths.length === 0 ? undefined : await makeDocument(discoveryDocument(site));
  return {
    documents: [
      fileOf(jwksPath as string, jwks, contentTypes.jwks, cacheControl[mode]),
      ...(discovery === undefined
        ? []
        : discoveryPaths.map((path) => fileOf(path, discovery, contentTypes.discovery, discoveryCacheControl))),
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

/** The header fields of a document in each mode, for the configuration of a server. */
export function headersOf({ path, contentType, ...document }: StaticDocument, site: CopiedSite) {
  const hasModes = path === pathsOf(site)[0];
  return {
    contentType,
    long: hasModes ? cacheControl.long : document.cacheControl,
    short: hasModes ? cacheControl.rotation : undefined,
    others: [
      ...(site.cors ? [["Access-Control-Allow-Origin", "*"] as const] : []),
      ...(site.cors ? [["Access-Control-Expose-Headers", "ETag, Age, Date"] as const] : []),
      ["X-Content-Type-Options", "nosniff"] as const,
    ],
  };
}
