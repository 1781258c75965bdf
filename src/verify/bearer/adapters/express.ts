import { type NodeResponse, writeReply } from "../../../publish/node.ts";
import type { Guard } from "../guard.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";
import type { Auth, Requirements } from "../requirements.ts";

/** Middleware of Express 4 and 5 and of connect. */
export type ExpressMiddleware = (
  request: NodeGuardedRequest,
  response: NodeResponse,
  next: (error?: unknown) => void,
) => Promise<void>;

/** Sets `auth` of the request, which the MCP SDK reads, and calls `next`, or answers. The promise never rejects. */
export const expressAdapter =
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
