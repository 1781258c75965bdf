import type { Metric } from "../base/metrics.ts";
import { targetPath } from "../base/urls.ts";
import type { DocumentName } from "./document-paths.ts";
import { type NodeRequest, type NodeResponse, writeReply } from "./node-response.ts";
import {
  type Reply,
  type Representation,
  methodNotAllowed,
  notFound,
  respond,
  unavailable,
  withoutBodyOnHead,
} from "./respond.ts";
import { createResponses, documents } from "./response-counts.ts";
import { type FetchHandler, fetchHandler, toResponse } from "./web-response.ts";

/** Request handlers for an issuer's documents. */
export interface ProviderHandlers {
  /**
   * Handles a web-standard request. Returns 404 for paths without a document. It is synchronous unless keys are read on
   * demand; if that read fails, it returns 503. Also accepts the arguments of the global `fetch`.
   */
  readonly fetch: FetchHandler;
  /**
   * Handles a request from `node:http`, Express or Connect. For paths without a document, calls `next` if it is given;
   * otherwise, responds with 404.
   */
  node(this: void, request: NodeRequest, response: NodeResponse, next?: () => void): void;
  /** Returns the response counts, for a scrape. See docs/metrics.md. */
  metrics(this: void): readonly Metric[];
}

/**
 * Creates a provider's handlers, which serve its documents and count the responses.
 *
 * @param fresh function that is called before the JWK Set is served; returns `undefined` if the set can be served
 * immediately
 */
export function createHandlers(
  routes: ReadonlyMap<string, DocumentName>,
  representationOf: (document: DocumentName) => Representation | undefined,
  fresh?: () => Promise<void> | undefined,
): ProviderHandlers {
  const responses = createResponses();
  let lastTarget: string | undefined;
  let lastDocument: DocumentName | undefined;

  function documentAt(target: string): DocumentName | undefined {
    // Most requests have the same target as the previous one, and parsing a URL takes time.
    if (target !== lastTarget) {
      lastDocument = routes.get(target) ?? routes.get(targetPath(target));
      lastTarget = target;
    }
    return lastDocument;
  }

  function replyTo(name: DocumentName, method: string, ifNoneMatch: string | null | undefined): Reply | undefined {
    const representation = representationOf(name);
    // Checked first, so that the response is the same whether or not there are keys yet.
    if (!isRead(method)) return methodNotAllowed.get;
    return representation && respond(representation, method, ifNoneMatch);
  }

  function countedReply(method: string, target: string, ifNoneMatch: string | null | undefined): Reply | undefined {
    const name = documentAt(target);
    const reply = name && replyTo(name, method, ifNoneMatch);
    if (reply !== undefined) responses.count(name === "jwks" ? 0 : 1, reply);
    return reply;
  }

  /** Returns the read that a request has to wait for, or `undefined` if it need not wait. */
  function waitFor(method: string, target: string): Promise<void> | undefined {
    return fresh !== undefined && isRead(method) && documentAt(target) === "jwks" ? fresh() : undefined;
  }

  function unavailableReply(method: string): Reply {
    const reply = withoutBodyOnHead(unavailable, method);
    responses.count(0, reply);
    return reply;
  }

  function notFoundReply(method: string): Reply {
    const reply = withoutBodyOnHead(notFound, method);
    responses.count(documents.length - 1, reply);
    return reply;
  }

  return {
    fetch: fetchHandler(({ method, url, headers }) => {
      const handle = (): Response =>
        toResponse(countedReply(method, url, headers.get("if-none-match")) ?? notFoundReply(method));
      const reading = waitFor(method, url);
      return reading === undefined ? handle() : reading.then(handle, () => toResponse(unavailableReply(method)));
    }),

    node(request, response, next) {
      const { method = "GET" } = request;
      const target = request.originalUrl ?? request.url ?? "/";
      const handle = (): void => {
        const reply = countedReply(method, target, request.headers["if-none-match"]);
        if (reply !== undefined) writeReply(response, reply);
        else if (next !== undefined) next();
        else writeReply(response, notFoundReply(method));
      };
      const reading = waitFor(method, target);
      if (reading === undefined) handle();
      else void reading.then(handle, () => writeReply(response, unavailableReply(method)));
    },

    metrics: () => responses.metrics(),
  };
}

const isRead = (method: string): boolean => method === "GET" || method === "HEAD";
