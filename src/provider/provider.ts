import { systemClock } from "../clock.ts";
import { toResponse } from "../http/fetch.ts";
import { type NodeRequest, type NodeResponse, writeReply } from "../http/node.ts";
import {
  type CacheMode,
  type Reply,
  type Representation,
  cacheControl,
  methodNotAllowed,
  notFound,
  represent,
  respond,
  withoutBodyOnHead,
} from "../http/respond.ts";
import { type Document, type Edition, makeDocument, makeEditions } from "../keyset/document.ts";
import { type EncryptionKeyset, type Keyset, checkKeyset } from "../keyset/keyset.ts";
import { discoveryDocument } from "./discovery.ts";
import { type ProviderOptions, checkNames, mergeOptions } from "./options.ts";
import { locate, targetPath } from "./paths.ts";
import { rotationMode } from "./rotation-mode.ts";

/** What `provider.update` takes; a keyset that is not given stays as it is. */
export interface KeysetUpdate {
  readonly keyset?: Keyset | null | undefined;
  /** `[]` takes all encryption keys away. */
  readonly encryptionKeyset?: EncryptionKeyset | null | undefined;
}

/** The key side of an OpenID provider: the JWK Set endpoint and the discovery document. */
export interface Provider {
  readonly issuer: string;
  /** Absolute URL of the JWK Set, as the discovery document has it. */
  readonly jwksUri: string;
  /** Answers a web-standard request; 404 for every path that is not the provider's. */
  fetch(this: void, request: Request): Response;
  /** Answers a request of `node:http`, Express or Connect. A path that is not the provider's goes to `next`, without one it gets a 404. */
  node(this: void, request: NodeRequest, response: NodeResponse, next?: () => void): void;
  /**
   * Replaces one keyset or both, all or nothing: on an error the old ones go on serving. Calls take effect in the order they
   * were made. A request sees the old or the new document whole.
   *
   * @throws KeyMaterialError see `createProvider`
   */
  update(this: void, change: KeysetUpdate): Promise<void>;
}

/** What is served until a moment, and what follows. */
interface Published extends Readonly<Record<CacheMode, Representation>> {
  readonly until: number;
  readonly following: Published | undefined;
}

function publishedFrom(editions: readonly Edition[], cors: boolean): Published {
  const page = (document: Document, mode: CacheMode): Representation =>
    represent(document, "application/jwk-set+json", cacheControl[mode], cors);
  return editions.reduceRight<Published | undefined>(
    (following, { document, until }) => ({
      long: page(document, "long"),
      rotation: page(document, "rotation"),
      until,
      following,
    }),
    undefined,
  ) as Published;
}

/**
 * Makes a provider from its options, merged left to right. Everything is checked here, before the first request.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`, `ERR_PATH_CLASH`,
 * `ERR_METADATA_RESERVED`
 * @throws KeyMaterialError `ERR_KEYSET_EMPTY`, `ERR_KID_INVALID`, `ERR_KID_DUPLICATE`, `ERR_KEY_DUPLICATE`,
 * `ERR_KEY_IN_BOTH_KEYSETS`, `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`, `ERR_KEY_PURPOSE`,
 * `ERR_ALG_UNSUPPORTED`, `ERR_PRIVATE_KEY_MISSING`, `ERR_NOT_AFTER_INVALID`
 * @see the contract, sections 2 to 4
 */
export async function createProvider(...options: readonly (ProviderOptions | null | undefined)[]): Promise<Provider> {
  const merged = mergeOptions(options);
  const { endpoints = {}, cors = true, clock = systemClock } = merged;
  checkNames(endpoints, ["jwks"], "endpoint");
  const { issuer, jwksUri, routes } = locate(merged.issuer, merged.mountPrefix, endpoints.jwks ?? undefined);
  const mode = rotationMode(
    merged.jwksRotationActive,
    merged.onWarning ?? ((warning) => console.warn(`jwksd: ${warning.message}`)),
  );
  const metadata = discoveryDocument({ issuer, jwksUri, metadata: merged.metadata ?? {} });
  const discovery = represent(await makeDocument(metadata), "application/json", "public, max-age=3600", cors);

  let keysets = { keyset: merged.keyset ?? [], encryptionKeyset: merged.encryptionKeyset ?? [] };
  let published = await publish(keysets);
  let updates: Promise<unknown> = Promise.resolve();

  async function publish(wanted: typeof keysets): Promise<Published> {
    const checked = await checkKeyset(wanted.keyset, wanted.encryptionKeyset);
    return publishedFrom(await makeEditions(checked, clock.now()), cors);
  }

  function answer(method: string, target: string, ifNoneMatch: string | null | undefined): Reply | undefined {
    const route = routes.get(target) ?? routes.get(targetPath(target));
    if (route === undefined) return undefined;
    if (method !== "GET" && method !== "HEAD") return methodNotAllowed.get;
    if (route === "discovery") return respond(discovery, method, ifNoneMatch);
    while (published.following !== undefined && clock.now() >= published.until) published = published.following;
    return respond(published[mode()], method, ifNoneMatch);
  }

  return Object.freeze({
    issuer,
    jwksUri,

    fetch: (request) =>
      toResponse(
        answer(request.method, request.url, request.headers.get("if-none-match")) ??
          withoutBodyOnHead(notFound, request.method),
      ),

    node(request, response, next) {
      const method = request.method ?? "GET";
      const reply = answer(method, request.originalUrl ?? request.url ?? "/", request.headers["if-none-match"]);
      if (reply !== undefined) writeReply(response, reply);
      else if (next !== undefined) next();
      else writeReply(response, withoutBodyOnHead(notFound, method));
    },

    async update(change) {
      checkNames(change, ["keyset", "encryptionKeyset"], "keyset");
      const given = mergeOptions([change]);
      const done = updates.then(async () => {
        const wanted = { ...keysets, ...given };
        published = await publish(wanted);
        keysets = wanted;
      });
      updates = done.catch(() => {});
      await done;
    },
  } satisfies Provider);
}
