import { type NodeResponse, writeReply } from "../../../publish/node-response.ts";
import type { Decide } from "../access-decision.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";

/** Middleware for Express 4 and 5 and for connect. */
export type ExpressMiddleware = (
  request: NodeGuardedRequest,
  response: NodeResponse,
  next: (error?: unknown) => void,
) => Promise<void>;

/**
 * Creates middleware that either responds, or sets the request's `auth` (which the MCP SDK reads) and calls `next`. Its
 * promise never rejects.
 */
export const expressAdapter =
  (decide: Decide): ExpressMiddleware =>
  async (request, response, next) => {
    try {
      const decision = await decide(nodeRequest(request, request));
      // The application may have responded in the meantime, for example after a timeout.
      if (response.headersSent) return;
      if ("reply" in decision) return writeReply(response, decision.reply);
      if (decision.auth !== undefined) Object.assign(request, { auth: decision.auth });
      // Called in a microtask, so that an error in a handler is an uncaught exception, as it is without a guard, and
      // not an unhandled rejection.
      queueMicrotask(() => next());
    } catch (error) {
      queueMicrotask(() => next(error));
    }
  };
