import { fieldsOf } from "../../../publish/respond.ts";
import type { Decide } from "../access-decision.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";

/** The part of a Koa context that a guard uses. */
export interface KoaContextLike {
  readonly req: NodeGuardedRequest;
  readonly originalUrl: string;
  readonly headerSent: boolean;
  status: number;
  body: unknown;
  set(name: string, value: string): unknown;
}

/** Middleware for Koa. */
export type KoaMiddleware = (context: KoaContextLike, next: () => Promise<unknown>) => Promise<unknown>;

/** Creates middleware that either calls `next` or responds. */
export const koaAdapter =
  (decide: Decide): KoaMiddleware =>
  async (context, next) => {
    const decision = await decide(nodeRequest(context.req, context, context.originalUrl));
    // The application may have responded in the meantime.
    if (context.headerSent) return undefined;
    if ("auth" in decision) return next();
    const { status, body } = decision.reply;
    Object.assign(context, { status, body });
    for (const [name, value] of fieldsOf(decision.reply)) context.set(name, value);
    return undefined;
  };
