import { type Clock, systemClock } from "../../base/clock.ts";
import { ClientDocumentError, FetchError, type JwksdError, asJwksdError, invalidOption } from "../../base/errors.ts";
import { isGiven, jsonOf, memberOf } from "../../base/json.ts";
import {
  type Optional,
  type Rules,
  array,
  boolean,
  callback,
  checkOptions,
  clock,
  nonEmptyString,
  number,
  required,
  string,
  strings,
} from "../../base/options.ts";
import { isLoopback, shownUrl } from "../../base/urls.ts";
import { type ResourceTools, createBoundedCache } from "../http-cache/bounded-cache.ts";
import { type Cached, createCached } from "../http-cache/cached-response.ts";
import type { Fetch } from "../http-cache/fetch-json.ts";
import { fetchStored, isResponseState } from "../http-cache/stored-response.ts";
import { type LimitedFetch, limitRequests } from "../http-cache/throttled-fetch.ts";
import type { KeySetState } from "../relying-party/cached-key-set.ts";
import { checkIssuer, checkSecureUrl } from "../relying-party/secure-urls.ts";
import { type ClientMethod, chooseMethod } from "./auth-method.ts";
import { clientAlgorithms } from "./client-algorithms.ts";
import { checkClientId } from "./client-id.ts";
import type { ClientKeyMetadata } from "./client-keys.ts";
import { type ClientMetadata, readClientMetadata } from "./document-metadata.ts";
import { type ClientDocumentEvent, printableEvents } from "./events.ts";
import { clientBounds, hostLimits, newBudget, timeoutMs } from "./fetch-limits.ts";
import { type ClientPart, changedParts, fingerprintOf } from "./metadata-fingerprint.ts";
import { areLoopback } from "./redirect-uri.ts";

/** The recommended maximum size. @see draft-ietf-oauth-client-id-metadata-document-02 section 8.7 */
const maxBytes = 5_120;
const mediaTypes = ["application/json", "+json"];

/**
 * Reports whether a URL may be fetched. The URL is either a client's identifier or the `jwks_uri` in that client's
 * document.
 */
export type AllowUrl = (url: string) => boolean | Promise<boolean>;

/**
 * A stored metadata document as plain data that can be saved as JSON. Its other members are the same as in a key set's
 * state.
 */
export interface ClientDocumentState extends Omit<KeySetState, "issuer" | "jwksUri"> {
  /** The client's identifier: the document's URL. */
  readonly clientId: string;
}

/** Options for `createClientDocuments`. */
export interface ClientDocumentsOptions {
  /**
   * The provider's issuer identifier. If it is on a loopback host, clients may be on loopback hosts too, for
   * development.
   */
  readonly issuer: string;
  /** Fetches documents and keys. It must refuse private addresses, as `guardedFetch` from `jwksd/node` does. */
  readonly fetch: Fetch;
  /**
   * Hosts whose clients are accepted, such as `chatgpt.com` or `client.example:8443`, or a function that decides
   * whether a URL is accepted. A document's `jwks_uri` is checked too. Default: none.
   */
  readonly allow?: Optional<readonly string[] | AllowUrl>;
  /** Whether clients without keys (method `none`) are accepted. Default: `false`. */
  readonly publicClients?: Optional<boolean>;
  /**
   * Documents, as JSON, that are used as given instead of being fetched, regardless of what their hosts serve. `allow`
   * need not accept their `client_id`, but must accept their `jwks_uri`. Default: none.
   */
  readonly pinned?: Optional<readonly string[]>;
  /**
   * The result of an earlier process's `state()`. Its documents keep their freshness, and their clients count as
   * proven. A document that is no longer valid is ignored. Default: none.
   */
  readonly state?: Optional<readonly ClientDocumentState[]>;
  /** Maximum number of cached documents, 5 KiB each on average. Default: 1,000. */
  readonly maxDocuments?: Optional<number>;
  /** Source of the current time. Default: the machine's clock. */
  readonly clock?: Optional<Clock>;
  /** Receives an event for each fetch and failure. Default: no listener. */
  readonly onEvent?: Optional<(event: ClientDocumentEvent) => void>;
}

/**
 * Reports whether a value is a host in the spelling that `URL` produces. Any other spelling, or a wildcard, would never
 * match.
 */
const isHost = (value: string): boolean =>
  !value.includes("*") && URL.canParse(`https://${value}`) && new URL(`https://${value}`).host === value;

const rules: Rules<ClientDocumentsOptions> = {
  issuer: required(nonEmptyString),
  fetch: required(callback),
  allow: {
    must: "an array of hosts, such as chatgpt.com, or a function that returns whether a URL is accepted",
    types: ["array", "function"],
    holds: (value): value is unknown => callback.holds(value) || (strings.holds(value) && value.every(isHost)),
  },
  publicClients: boolean,
  pinned: strings,
  state: {
    must: "a value that state() returned",
    types: ["array"],
    holds: (value): value is unknown[] =>
      array.holds(value) &&
      value.every(
        (state) => string.holds(memberOf(state, "clientId")) && isResponseState(state as ClientDocumentState | null),
      ),
  },
  maxDocuments: number(1),
  clock,
  onEvent: callback,
};

/** A property of a client that a consent page should point out. */
export type ClientWarning =
  /** The identifier has a query. */
  | "query"
  /** The identifier is the root of a host. */
  | "root"
  /** All redirect URIs are on the user's machine, so any program on it can claim to be this client. */
  | "loopback";

/** A client that is identified by the URL of its metadata document. Everything in it is frozen. */
export interface ResolvedClient extends ClientKeyMetadata {
  /**
   * Authentication method at the token endpoint. It is the strongest method that the client offers and this server
   * accepts.
   */
  readonly method: ClientMethod;
  /** Name to display, along with the host of `clientId`. */
  readonly name: string;
  /** Redirect URIs, for `isRegisteredRedirectUri`. */
  readonly redirectUris: readonly string[];
  /** All of the document's members, including unknown ones. */
  readonly metadata: ClientMetadata;
  /**
   * Fingerprint of the method, the source of the keys, the redirect URIs and the displayed members. It is 67 characters
   * long.
   */
  readonly fingerprint: string;
  /** Parts that differ from the `since` fingerprint. */
  readonly changed: readonly ClientPart[];
  readonly warnings: readonly ClientWarning[];
}

/**
 * All results of `resolve`. They are recorded to tell them apart from registered clients, which may have the same
 * members.
 */
const documentClients = new WeakSet<ClientKeyMetadata>();

export const isDocumentClient = (client: ClientKeyMetadata): client is ResolvedClient => documentClients.has(client);

/** Clients that are identified by the URLs of their metadata documents. */
export interface ClientDocuments {
  /**
   * Returns the client with this identifier. Fetches, checks and caches its document.
   *
   * @param options `since` is the fingerprint that was stored with a consent, code or refresh token; `changed` in the
   * result lists the differences
   * @throws ClientDocumentError `ERR_CLIENT_ID`, `ERR_CLIENT_FORBIDDEN`, `ERR_CLIENT_DOCUMENT`, `ERR_CLIENT_KEYS_MISSING`,
   * `ERR_CLIENT_METHOD`, `ERR_CLIENT_WITHDRAWN`
   * @throws FetchError `ERR_CLIENT_RETRY_LATER` if no request is allowed yet, and for the same reasons as
   * `RemoteKeySet`
   */
  resolve(this: void, clientId: string, options?: { readonly since?: Optional<string> }): Promise<ResolvedClient>;
  /**
   * Records that a user has consented to a client or that the client holds a grant. Its document is then kept longer
   * than others.
   */
  prove(this: void, clientId: string): void;
  /** Returns the stored documents of proven clients, for a later process's `state` option. */
  state(this: void): readonly ClientDocumentState[];
  /**
   * Members for the server's metadata.
   *
   * @see draft-ietf-oauth-client-id-metadata-document-02 section 6; RFC 8414 section 2
   */
  readonly metadata: Readonly<{
    client_id_metadata_document_supported: true;
    token_endpoint_auth_methods_supported: readonly ClientMethod[];
    token_endpoint_auth_signing_alg_values_supported: readonly string[];
  }>;
}

/**
 * The `fetch` that each result of `createClientDocuments` uses. It is recorded so that a verifier can share the limits
 * of that `fetch`.
 */
const fetches = new WeakMap<ClientDocuments, LimitedFetch>();

/** Returns the `fetch` that these documents use. @throws ConfigError `ERR_OPTION_INVALID` */
export function fetchOf(documents: ClientDocuments): LimitedFetch {
  const fetch = fetches.get(documents);
  if (fetch === undefined) throw invalidOption('"documents" must be a result of createClientDocuments()');
  return fetch;
}

/**
 * Creates a cache of clients' metadata documents (CIMD).
 *
 * @example
 * ```ts
 * const documents = createClientDocuments({ issuer, fetch: guardedFetch, allow: ["chatgpt.com", "claude.ai"], publicClients: true });
 * const { name, redirectUris, method, fingerprint } = await documents.resolve(clientId);
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws ClientDocumentError `ERR_CLIENT_ID`, `ERR_CLIENT_DOCUMENT`, `ERR_CLIENT_KEYS_MISSING` if a pinned document is invalid
 * @see draft-ietf-oauth-client-id-metadata-document;
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
 */
export function createClientDocuments(options: ClientDocumentsOptions): ClientDocuments {
  const given = checkOptions(options, rules);
  const { issuer, allow = [], publicClients = false, maxDocuments = 1_000, clock = systemClock } = given;
  checkIssuer(issuer);
  const allowsLoopback = isLoopback(new URL(checkSecureUrl(issuer, "issuer", false)).hostname);
  const isAllowed = typeof allow === "function" ? allow : (url: string) => allow.includes(new URL(url).host);
  const emit = printableEvents(given.onEvent);
  const fetch = limitRequests({ fetch: given.fetch, clock, perHost: hostLimits });
  const cache = createBoundedCache({
    fetch,
    clock,
    maxEntries: maxDocuments,
    meanSize: maxBytes,
    open,
    sizeOf: ({ keeper }) => JSON.stringify({ ...keeper.current(), value: undefined }).length,
    newBudget,
    retryLater,
  });
  const pinned = new Map<string, ClientMetadata>();
  for (const text of given.pinned ?? []) {
    const clientId = checkClientId(memberOf(jsonOf(text), "client_id"), allowsLoopback);
    pinned.set(clientId, readClientMetadata(text, clientId));
  }
  /** Documents from an earlier process that have not been used yet. */
  const saved = new Map((given.state ?? []).map((state) => [state.clientId, state]));
  for (const clientId of saved.keys()) cache.vouch(clientId);

  function open(clientId: string, { fetch, weigh }: ResourceTools): Cached<ClientMetadata> {
    const { signal } = new AbortController();
    const request = { fetch, clock, timeoutMs, maxBytes, mediaTypes, signal };
    const failed = ({ code, message }: JwksdError): void => emit({ type: "failed", clientId, code, message });
    const cached: Cached<ClientMetadata> = createCached<ClientMetadata>({
      clock,
      signal,
      timeoutMs,
      maxWaitMs: 1_000,
      bounds: clientBounds,
      failures: newBudget(),
      what: "metadata document",
      async load(stored, bypassCaches) {
        try {
          return await fetchStored(clientId, stored, bypassCaches, {
            ...request,
            read: async ({ body }) => readClientMetadata(body, clientId),
          });
        } catch (error) {
          if (!isOutage(error)) cached.keeper.drop();
          throw error instanceof FetchError && error.answered === 410 ? withdrawn(clientId) : error;
        }
      },
      isOutage,
      retryLater,
      emit(event) {
        if (event.type === "refreshed") {
          weigh();
          emit({ ...event, clientId });
        } else if (event.type === "failed") failed(event.error);
      },
    });
    const state = saved.get(clientId);
    saved.delete(clientId);
    try {
      if (state) cached.keeper.restore({ ...state, url: clientId, value: readClientMetadata(state.body, clientId) });
    } catch (error) {
      failed(asJwksdError(error));
    }
    return cached;
  }

  /**
   * Returns the client that a checked document describes.
   *
   * @throws ClientDocumentError `ERR_CLIENT_METHOD`, `ERR_CLIENT_FORBIDDEN`
   */
  async function clientOf(metadata: ClientMetadata, since: Optional<string>): Promise<ResolvedClient> {
    const method = chooseMethod(metadata, publicClients);
    const { client_id: clientId, client_name: name, redirect_uris: redirectUris } = metadata;
    const jwks = isGiven(metadata.jwks) ? metadata.jwks : undefined;
    const jwksUri = metadata.jwks_uri || undefined;
    if (jwksUri !== undefined) await checkAllowed(jwksUri);
    const { pathname } = new URL(clientId);
    const warnings: ClientWarning[] = [];
    if (clientId.includes("?")) warnings.push("query");
    if (pathname === "/") warnings.push("root");
    if (areLoopback(redirectUris)) warnings.push("loopback");
    const fingerprint = await fingerprintOf(metadata, method);
    const changed = since === undefined || since === null ? [] : changedParts(since, fingerprint);
    for (const list of [warnings, changed]) Object.freeze(list);
    const client: ResolvedClient = Object.freeze({
      clientId,
      method,
      name,
      redirectUris,
      jwks,
      jwksUri,
      metadata,
      fingerprint,
      changed,
      warnings,
    });
    documentClients.add(client);
    return client;
  }

  async function checkAllowed(url: string): Promise<void> {
    // Only `true` allows a URL, because any object is truthy.
    if (((await isAllowed(url)) as unknown) === true) return;
    throw new ClientDocumentError(
      "ERR_CLIENT_FORBIDDEN",
      `${shownUrl(url)}: the "allow" option does not accept this URL`,
    );
  }

  async function fetched(clientId: string): Promise<ClientMetadata> {
    await checkAllowed(clientId);
    const { usable, refreshAhead } = cache.use(clientId).resource;
    const { value } = await usable();
    refreshAhead(clock.now());
    return value;
  }

  const documents: ClientDocuments = Object.freeze({
    async resolve(clientId: string, { since }: { readonly since?: Optional<string> } = {}) {
      checkClientId(clientId, allowsLoopback);
      return clientOf(pinned.get(clientId) ?? (await fetched(clientId)), since);
    },

    prove(clientId: string) {
      cache.vouch(clientId);
    },

    // Without the limit, clients that are never used again would accumulate from process to process.
    state: () =>
      [
        ...saved.values(),
        ...cache.proven().flatMap(({ resource }) => {
          const stored = resource.keeper.current();
          if (stored === undefined) return [];
          const { url: clientId, body, etag, headers, requestedAt } = stored;
          return [{ clientId, body, etag, headers, requestedAt }];
        }),
      ].slice(-maxDocuments),

    metadata: Object.freeze({
      client_id_metadata_document_supported: true,
      token_endpoint_auth_methods_supported: Object.freeze<ClientMethod[]>(
        publicClients ? ["private_key_jwt", "none"] : ["private_key_jwt"],
      ),
      token_endpoint_auth_signing_alg_values_supported: clientAlgorithms,
    }),
  });
  fetches.set(documents, fetch);
  return documents;
}

const outageCodes: ReadonlySet<string> = new Set([
  "ERR_FETCH_FAILED",
  "ERR_FETCH_TIMEOUT",
  "ERR_FETCH_BUSY",
  "ERR_FETCH_OUTDATED",
]);

/** Reports whether an error says nothing about the document. After any other error, the document is no longer used. */
function isOutage(error: unknown): boolean {
  if (!(error instanceof FetchError)) return false;
  const { code, answered } = error;
  return answered === undefined ? outageCodes.has(code) : answered === 404 || answered === 429 || answered >= 500;
}

function withdrawn(clientId: string): ClientDocumentError {
  const message = `${shownUrl(clientId)}: the client withdrew its metadata document (status 410)`;
  return new ClientDocumentError("ERR_CLIENT_WITHDRAWN", message);
}

function retryLater(pauseMs: number, cause?: unknown): FetchError {
  const retryAfterSeconds = Math.ceil(pauseMs / 1000);
  const message = `a client's metadata document cannot be fetched yet; try again in ${retryAfterSeconds} s`;
  return new FetchError("ERR_CLIENT_RETRY_LATER", message, { cause, retryAfterSeconds });
}
