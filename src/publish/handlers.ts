import type { Metric } from "../base/metrics.ts";
import { targetPath } from "../base/urls.ts";
import { toResponse } from "./fetch.ts";
import { type NodeRequest, type NodeResponse, writeReply } from "./node.ts";
import type { DocumentName } from "./paths.ts";
import {
  type Reply,
  type Representation,
  methodNotAllowed,
  notFound,
  respond,
  unavailable,
  withoutBodyOnHead,
} from "./respond.ts";
import { createResponses, documents } from "./responses.ts";

/** Answers requests for the documents of an issuer. */
export interface Handlers {
  /** Answers a web-standard request; 404 for other paths. At once, unless keys are read on demand: then 503 where they cannot be read. */
  fetch(this: void, request: Request): Response | Promise<Response>;
  /** Answers a request of `node:http`, Express or Connect. For other paths, calls `next` if it is given, else answers 404. */
  node(this: void, request: NodeRequest, response: NodeResponse, next?: () => void): void;
  /** Counts of responses, made for each scrape. See docs/metrics.md. */
  metrics(this: void): readonly Metric[];
}

/**
 * The handlers of a provider: they answer requests for the documents, and count the responses.
 *
 * @param fresh is called before the JWK Set is given; `undefined` where that may be done now
 */
export function createHandlers(
  routes: ReadonlyMap<string, DocumentName>,
  representationOf: (document: DocumentName) => Representation | undefined,
  fresh?: () => Promise<void> | undefined,
): Handlers {
  const responses = createResponses();
  let lastTarget: string | undefined;
  let lastDocument: DocumentName | undefined;

  function documentAt(target: string): DocumentName | undefined {
    // Most requests have the same target as the one before, and parsing a URL takes time.
    if (target !== lastTarget) {
      lastDocument = routes.get(target) ?? routes.get(targetPath(target));
      lastTarget = target;
    }
    return lastDocument;
  }

  function replyTo(name: DocumentName, method: string, ifNoneMatch: string | null | undefined): Reply | undefined {
    const representation = representationOf(name);
    // Whether or not there are keys yet.
    if (!isRead(method)) return methodNotAllowed.get;
    return representation && respond(representation, method, ifNoneMatch);
  }

  function answer(method: string, target: string, ifNoneMatch: string | null | undefined): Reply | undefined {
    const name = documentAt(target);
    const reply = name && replyTo(name, method, ifNoneMatch);
    if (reply !== undefined) responses.count(name === "jwks" ? 0 : 1, reply);
    return reply;
  }

  /** What a request has to wait for. */
  function waitFor(method: string, target: string): Promise<void> | undefined {
    return fresh !== undefined && isRead(method) && documentAt(target) === "jwks" ? fresh() : undefined;
  }

  function answerUnavailable(method: string): Reply {
    const reply = withoutBodyOnHead(unavailable, method);
    responses.count(0, reply);
    return reply;
  }

  function answerNotFound(method: string): Reply {
    const reply = withoutBodyOnHead(notFound, method);
    responses.count(documents.length - 1, reply);
    return reply;
  }

  return {
    fetch({ method, url, headers }) {
      const answered = (): Response =>
        toResponse(answer(method, url, headers.get("if-none-match")) ?? answerNotFound(method));
      const reading = waitFor(method, url);
      return reading === undefined ? answered() : reading.then(answered, () => toResponse(answerUnavailable(method)));
    },

    node(request, response, next) {
      const { method = "GET" } = request;
      const target = request.originalUrl ?? request.url ?? "/";
      const answered = (): void => {
        const reply = answer(method, target, request.headers["if-none-match"]);
        if (reply !== undefined) writeReply(response, reply);
        else if (next !== undefined) next();
        else writeReply(response, answerNotFound(method));
      };
      const reading = waitFor(method, target);
      if (reading === undefined) answered();
      else void reading.then(answered, () => writeReply(response, answerUnavailable(method)));
    },

    metrics: () => responses.metrics(),
  };
}

const isRead = (method: string): boolean => method === "GET" || method === "HEAD";
