import type { Clock } from "../base/clock.ts";
import { gauge, plain } from "../base/metrics.ts";
import type { Jwk } from "../keys/jwk/public.ts";
import { type Metadata, discoveryDocument } from "./discovery.ts";
import { makeDocument } from "./document.ts";
import { type Handlers, createHandlers } from "./handlers.ts";
import { type JwkSet, type JwkSetDocument, documentAt } from "./jwk-set.ts";
import { type Place, locate } from "./paths.ts";
import {
  type CacheMode,
  type Representation,
  cacheControl,
  contentTypes,
  discoveryCacheControl,
  represent,
} from "./respond.ts";

/** Where the documents of an issuer are, how they are sent, and what they hold beside keys. */
export interface Site extends Place {
  readonly discovery: boolean;
  readonly metadata?: Metadata | undefined;
  readonly cors: boolean;
}

/** Serves a JWK Set, and the discovery document that leads to it. */
export interface Publisher extends Handlers {
  /** The issuer identifier. */
  readonly issuer: string;
  /** Absolute URL of the JWK Set, for the discovery document. */
  readonly jwksUri: string;
  /** As it is served now. */
  jwkSet(this: void): { readonly keys: readonly Jwk[] };
  /** Replaces the set in one step. */
  publish(this: void, set: JwkSet): void;
}

type Shown = JwkSetDocument & Readonly<Record<CacheMode, Representation>>;

export interface PublisherOptions {
  /** Asked for each request of the set. */
  readonly mode: () => CacheMode;
  readonly clock: Clock;
  /** Called before the set is given; `undefined` where that may be done now. */
  readonly fresh?: (() => Promise<void> | undefined) | undefined;
}

/**
 * Makes a publisher, which answers 404 for the set until one is published.
 *
 * @throws ConfigError `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`, `ERR_PATH_CLASH`, `ERR_METADATA_RESERVED`, `ERR_OPTION_INVALID`
 */
export async function createPublisher(site: Site, { mode, clock, fresh }: PublisherOptions): Promise<Publisher> {
  const { issuer, jwksUri, routes } = locate(site);
  const { cors } = site;
  const discoveryJson = site.discovery ? await makeDocument(discoveryDocument(site)) : undefined;
  const discovery = discoveryJson && represent(discoveryJson, contentTypes.discovery, discoveryCacheControl, cors);
  let shown: readonly Shown[] = [];

  const { metrics, ...handlers } = createHandlers(
    routes,
    (name) => (name === "jwks" ? documentAt(shown, clock)?.[mode()] : discovery),
    fresh,
  );
  return {
    issuer,
    jwksUri,
    ...handlers,
    jwkSet: () => ({ keys: documentAt(shown, clock)?.keys ?? [] }),
    publish({ documents }) {
      shown = documents.map((document) => ({
        ...document,
        long: represent(document, contentTypes.jwks, cacheControl.long, cors),
        rotation: represent(document, contentTypes.jwks, cacheControl.rotation, cors),
      }));
    },
    metrics: () => [
      ...metrics(),
      gauge(
        ["jwksd_rotation_mode", "Whether the short Cache-Control of rotation mode is sent (1) or the long one (0)."],
        plain(mode() === "rotation"),
      ),
    ],
  };
}
