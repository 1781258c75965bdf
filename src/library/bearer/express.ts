import { type NodeResponse, writeReply } from "../http/node.ts";
import type { Auth, Guard, GuardedRequest } from "./guard.ts";
import type { Requirements } from "./requirements.ts";

declare global {
  // What @types/express makes of a request.
  // oxlint-disable-next-line typescript/no-namespace
  namespace Express {
    interface Request {
      /** Of a route that `bearer.express()` guards. */
      auth: Auth;
    }
  }
}

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

/** Sets `auth` of the request and calls `next`, or answers. */
export const expressFace =
  ({ decide }: Guard, requirements: Requirements): ExpressMiddleware =>
  async (request, response, next) => {
    const decision = await decide(nodeRequest(request, request), requirements);
    if ("reply" in decision) return writeReply(response, decision.reply);
    (request as { auth?: Auth }).auth = decision.auth;
    next();
  };

/** @param source what the function `certificate` gets */
export function nodeRequest(request: NodeGuardedRequest, source: object): GuardedRequest {
  const { method = "GET", originalUrl, url = "/", headers } = request;
  const { dpop } = headers;
  return {
    method,
    target: originalUrl ?? url,
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
