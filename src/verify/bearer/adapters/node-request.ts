import { headerLines } from "../../../publish/node-response.ts";
import type { GuardedRequest } from "../authorization-header.ts";

/** The part of a `node:http`, Express or connect request that a guard uses. */
export interface NodeGuardedRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** The URL before a framework stripped the mount path from it. */
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly rawHeaders?: readonly string[] | undefined;
}

/** Returns the part of a Node request that the guard reads. @param source the request as the framework passes it */
export function nodeRequest(
  request: NodeGuardedRequest,
  source: object,
  target = request.originalUrl ?? request.url ?? "/",
): GuardedRequest {
  const { method = "GET", headers } = request;
  const authorization = headerLines("authorization", request.rawHeaders);
  return {
    method,
    target,
    authorization: authorization.length > 1 ? authorization.join(", ") : joined(headers["authorization"]),
    proof: joined(headers["dpop"]),
    source,
    raw: request,
  };
}

const joined = (field: string | string[] | undefined): string | undefined =>
  Array.isArray(field) ? field.join(", ") : field;
