import { cacheControl } from "../../library/http/respond.ts";
import type { Keysets } from "../../library/provider/managed-keys.ts";
import type { Metadata } from "../../library/provider/options.ts";
import { locate } from "../../library/provider/paths.ts";
import { createProvider } from "../../library/provider/provider.ts";
import type { Provider } from "../../library/provider/types.ts";

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
  /** Whether the short Cache-Control of the rotation mode is sent. */
  readonly isShort: boolean;
}

/** Where the documents are, and how they are sent. */
export interface Site extends OpenSite {
  readonly issuer: string;
}

/** A site whose issuer may not be known yet. */
export interface OpenSite {
  readonly issuer?: string | undefined;
  readonly mountPrefix?: string | undefined;
  readonly jwksPath?: string | undefined;
  readonly cors: boolean;
  readonly discovery: boolean;
  readonly metadata?: Metadata | undefined;
}

/** The paths of the documents below the issuer, in the order in which they are published. */
export const pathsOf = (site: Site): readonly string[] => documentPaths(site).map(({ path }) => path);

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
export function documentPaths({
  issuer,
  mountPrefix,
  jwksPath,
  discovery,
}: Site): readonly [DocumentPath, ...DocumentPath[]] {
  const { jwksUri, metadataPaths } = locate(issuer, mountPrefix, jwksPath, { discovery });
  const base = new URL(baseOf(issuer)).pathname;
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

/** Answers the documents of a site. @throws ConfigError, KeyMaterialError see `createProvider` */
export function providerAt(
  { issuer, mountPrefix, jwksPath, cors, discovery, metadata }: Site,
  { keyset, encryptionKeyset }: Keysets,
  jwksRotationActive: () => boolean,
): Promise<Provider> {
  const endpoints = { jwks: jwksPath };
  const site = { issuer, mountPrefix, endpoints, jwksRotationActive, cors, discovery, metadata };
  return createProvider(site, { keyset, encryptionKeyset });
}

/** The documents of keysets. @throws see {@link providerAt} */
export async function documentSetOf(keysets: Keysets, site: Site, isShort: boolean): Promise<DocumentSet> {
  const provider = await providerAt(site, keysets, () => isShort);
  const documents = pathsOf(site).map(async (path): Promise<StaticDocument> => {
    const { headers, body } = provider.fetch(new Request(baseOf(site.issuer) + path));
    return {
      path,
      body: new Uint8Array(await new Response(body).arrayBuffer()),
      contentType: headers.get("content-type") ?? "",
      cacheControl: headers.get("cache-control") ?? "",
    };
  });
  return { documents: await Promise.all(documents), isShort };
}

/** The header fields of a document in each mode, for the configuration of a server. */
export function headersOf({ path, contentType, ...document }: StaticDocument, site: Site) {
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
