import type { GuardedRequest } from "../authorization.ts";

/** The part of a request of `node:http`, Express and connect that a guard uses. */
export interface NodeGuardedRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** The URL before a framework stripped its mount path. */
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly rawHeaders?: readonly string[] | undefined;
}

/** @param source what the function `certificate` gets */
export function nodeRequest(
  request: NodeGuardedRequest,
  source: object,
  target = request.originalUrl ?? request.url ?? "/",
): GuardedRequest {
  const { method = "GET", headers } = request;
  const { dpop } = headers;
  return {
    method,
    target,
    authorization: authorizationOf(request),
    proof: Array.isArray(dpop) ? dpop.join(", ") : dpop,
    source,
    raw: request,
  };
}

/** Node gives the first of several header fields `Authorization` and hides the others. */
function authorizationOf({ headers, rawHeaders = [] }: NodeGuardedRequest): string | undefined {
  const given: string[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    if (name.length === 13 && name.toLowerCase() === "authorization") given.push(rawHeaders[i + 1] as string);
  }
  if (given.length > 1) return given.join(", ");
  return headers["authorization"] as string | undefined;
}
