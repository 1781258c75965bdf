import { type NodeResponse, writeReply } from "../../http/node.ts";
import type { GuardedRequest } from "../authorization.ts";
import type { Guard } from "../guard.ts";
import type { Auth, Requirements } from "../requirements.ts";

/** The part of a request of `node:http`, Express and connect that a guard uses. */
export interface NodeGuardedRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** The URL before a framework stripped its mount path. */
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly rawHeaders?: readonly string[] | undefined;
}

/** Middleware of Express 4 and 5 and of connect. */
export type ExpressMiddleware = (
  request: NodeGuardedRequest,
  response: NodeResponse,
  next: (error?: unknown) => void,
) => Promise<void>;

/** Sets `auth` of the request, which the MCP SDK reads, and calls `next`, or answers. The promise never rejects. */
export const expressFace =
  ({ decide }: Guard, requirements: Requirements): ExpressMiddleware =>
  async (request, response, next) => {
    try {
      const decision = await decide(nodeRequest(request, request), requirements);
      // The application has answered meanwhile, such as with a time-out.
      if (response.headersSent) return;
      if ("reply" in decision) return writeReply(response, decision.reply);
      if (decision.auth !== undefined) (request as { auth?: Auth }).auth = decision.auth;
      // What a handler throws is then an exception, as without a guard, and not an unhandled rejection.
      queueMicrotask(() => next());
    } catch (error) {
      queueMicrotask(() => next(error));
    }
  };

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
