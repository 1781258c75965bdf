import { toResponse } from "../../../publish/web-response.ts";
import type { Decide } from "../access-decision.ts";
import { fetchRequest } from "./fetch.ts";

/** The part of a Hono context that a guard uses. */
export interface HonoContextLike {
  readonly req: { readonly raw: Request };
}

/** Middleware for Hono. */
export type HonoMiddleware = (context: HonoContextLike, next: () => Promise<void>) => Promise<Response | void>;

/** Creates middleware that either calls `next` or responds. */
export const honoAdapter =
  (decide: Decide): HonoMiddleware =>
  async (context, next) => {
    const decision = await decide(fetchRequest(context.req.raw, context));
    return "reply" in decision ? toResponse(decision.reply) : next();
  };
