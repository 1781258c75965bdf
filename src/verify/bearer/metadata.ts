import { targetPath, wellKnownPath } from "../../base/urls.ts";
import { publicKeyAlgorithms } from "../../keys/crypto/algorithms.ts";
import { type Document, makeDocument } from "../../publish/document.ts";
import { type NodeRequest, type NodeResponse, writeReply } from "../../publish/node-response.ts";
import {
  type Reply,
  methodNotAllowed,
  notFound,
  represent,
  respond,
  withoutBodyOnHead,
} from "../../publish/respond.ts";
import { toResponse } from "../../publish/web-response.ts";
import type { BearerSettings } from "./settings.ts";

/**
 * Returns the URL of a resource's metadata. A trailing slash is dropped only if it is the whole path.
 *
 * @see RFC 9728 section 3.1
 */
export function resourceMetadataUrl(resource: string): string {
  const { origin, pathname } = new URL(resource);
  return origin + wellKnownPath("oauth-protected-resource", pathname === "/" ? "" : pathname);
}

/** Handlers that serve a resource's metadata. */
export interface ResourceMetadataHandlers {
  /** Handles a `Request`. If its path is not a metadata path, returns 404. */
  fetch(this: void, request: Request): Promise<Response>;
  /**
   * Handles a request in Express, Connect and `node:http`. If the path is not a metadata path, calls `next` or, if
   * `next` is not given, responds with 404.
   */
  node(this: void, request: NodeRequest, response: NodeResponse, next?: (error?: unknown) => void): void;
}

/** @see RFC 9728 section 2 */
function membersOf({ resource, issuers, dpop, certificate, metadata }: BearerSettings): object {
  return {
    resource,
    ...(typeof issuers !== "function" && {
      authorization_servers: issuers.map((each) => (typeof each === "string" ? each : each.issuer)),
    }),
    bearer_methods_supported: ["header"],
    ...(dpop !== undefined && { dpop_signing_alg_values_supported: publicKeyAlgorithms }),
    ...(dpop === "required" && { dpop_bound_access_tokens_required: true }),
    ...(certificate !== undefined && { tls_client_certificate_bound_access_tokens: true }),
    ...metadata,
  };
}

/** Creates the handlers, which serve the well-known path both with and without the resource's path. */
export function createMetadata(settings: BearerSettings): ResourceMetadataHandlers {
  const { resource } = settings;
  let document: Promise<Document> | undefined;
  const paths =
    resource === undefined
      ? []
      : [wellKnownPath("oauth-protected-resource"), new URL(resourceMetadataUrl(resource)).pathname];

  /** Returns the response, or `undefined` if the path is not a metadata path. */
  function replyFor(
    method: string,
    target: string,
    ifNoneMatch: string | null | undefined,
  ): Promise<Reply> | undefined {
    if (!paths.includes(targetPath(target))) return undefined;
    document ??= makeDocument(membersOf(settings));
    return document.then((body) => {
      if (method !== "GET" && method !== "HEAD") return methodNotAllowed.get;
      return respond(represent(body, "application/json", "public, max-age=3600", true), method, ifNoneMatch);
    });
  }

  return {
    fetch: async ({ method, url, headers }) =>
      toResponse((await replyFor(method, url, headers.get("if-none-match"))) ?? withoutBodyOnHead(notFound, method)),

    node(request, response, next) {
      const { method = "GET", originalUrl, url = "/", headers } = request;
      const replying = replyFor(method, originalUrl ?? url, headers["if-none-match"]);
      if (replying !== undefined) void replying.then((reply) => writeReply(response, reply), next);
      else if (next === undefined) writeReply(response, withoutBodyOnHead(notFound, method));
      else next();
    },
  };
}
