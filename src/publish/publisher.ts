import { type CacheMode, cacheControl } from "../base/cache-control.ts";
import type { Clock } from "../base/clock.ts";
import type { PublishedJwk } from "../keys/jwk/public-members.ts";
import { type Metadata, discoveryDocument } from "./discovery.ts";
import { type Place, locate } from "./document-paths.ts";
import { makeDocument } from "./document.ts";
import { type ProviderHandlers, createHandlers } from "./handlers.ts";
import { type JwkSet, type JwkSetDocument, documentAt } from "./jwk-set.ts";
import { type Representation, contentTypes, discoveryCacheControl, represent } from "./respond.ts";

/** An issuer's documents, apart from the keys: where they are, what they contain, and how they are sent. */
export interface Site extends Place {
  readonly discovery: boolean;
  readonly metadata?: Metadata | undefined;
  readonly cors: boolean;
}

/** A JWK Set with its URL and, optionally, the discovery document that contains the URL. */
export interface Publisher extends ProviderHandlers {
  /** Issuer identifier. */
  readonly issuer: string;
  /** Absolute URL of the JWK Set, for the discovery document. */
  readonly jwksUri: string;
  /** Returns the JWK Set that is currently served. */
  jwkSet(this: void): { readonly keys: readonly PublishedJwk[] };
  /** Replaces the set atomically. */
  publish(this: void, set: JwkSet): void;
}

type ServedDocument = JwkSetDocument & Readonly<Record<CacheMode, Representation>>;

export interface PublisherOptions {
  /** Returns the cache mode. Called on every request for the set. */
  readonly mode: () => CacheMode;
  readonly clock: Clock;
  /** Called before the set is served. Returns `undefined` if the set can be served immediately. */
  readonly fresh?: (() => Promise<void> | undefined) | undefined;
}

/**
 * Creates a publisher. Until a set is published, requests for it get a 404.
 *
 * @throws ConfigError `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`, `ERR_OPTION_INVALID`
 */
export async function createPublisher(site: Site, { mode, clock, fresh }: PublisherOptions): Promise<Publisher> {
  const { issuer, jwksUri, routes } = locate(site);
  const { cors } = site;
  const discoveryJson = site.discovery ? await makeDocument(discoveryDocument(site)) : undefined;
  const discovery = discoveryJson && represent(discoveryJson, contentTypes.discovery, discoveryCacheControl, cors);
  let served: readonly ServedDocument[] = [];

  const handlers = createHandlers(
    routes,
    (name) => (name === "jwks" ? documentAt(served, clock)?.[mode()] : discovery),
    fresh,
  );
  return {
    issuer,
    jwksUri,
    ...handlers,
    jwkSet: () => ({ keys: documentAt(served, clock)?.keys ?? [] }),
    publish({ documents }) {
      served = documents.map((document) => ({
        ...document,
        long: represent(document, contentTypes.jwks, cacheControl.long, cors),
        rotation: represent(document, contentTypes.jwks, cacheControl.rotation, cors),
      }));
    },
  };
}
