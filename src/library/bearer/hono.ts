import { toResponse } from "../http/fetch.ts";
import { fetchRequest } from "./fetch.ts";
import type { Auth, Guard } from "./guard.ts";
import type { Requirements } from "./requirements.ts";

/** @ts-ignore There is no Hono where another framework is used. */
declare module "hono" {
  interface ContextVariableMap {
    /** Of a route that `bearer.hono()` guards. */
    auth: Auth;
  }
}

/** The part of a context of Hono that a guard uses. */
export interface HonoContextLike {
  readonly req: { readonly raw: Request };
  set(name: "auth", value: Auth): void;
}

/** Middleware of Hono. */
export type HonoMiddleware = (context: HonoContextLike, next: () => Promise<void>) => Promise<Response | void>;

/** Sets the variable `auth` of the context and calls `next`, or answers. */
export const honoFace =
  ({ decide }: Guard, requirements: Requirements): HonoMiddleware =>
  async (context, next) => {
    const decision = await decide(fetchRequest(context.req.raw, context), requirements);
    if ("reply" in decision) return toResponse(decision.reply);
    context.set("auth", decision.auth);
    return next();
  };
