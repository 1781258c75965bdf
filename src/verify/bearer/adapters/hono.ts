import { toResponse } from "../../../publish/fetch.ts";
import { fetchRequest } from "./fetch.ts";
import type { Guard } from "../guard.ts";
import type { Requirements } from "../requirements.ts";

/** The part of a context of Hono that a guard uses. */
export interface HonoContextLike {
  readonly req: { readonly raw: Request };
}

/** Middleware of Hono. */
export type HonoMiddleware = (context: HonoContextLike, next: () => Promise<void>) => Promise<Response | void>;

/** Calls `next`, or answers. */
export const honoAdapter =
  ({ decide }: Guard, requirements: Requirements): HonoMiddleware =>
  async (context, next) => {
    const decision = await decide(fetchRequest(context.req.raw, context), requirements);
    return "reply" in decision ? toResponse(decision.reply) : next();
  };
