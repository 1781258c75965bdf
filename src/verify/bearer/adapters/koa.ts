import { fieldsOf } from "../../../publish/respond.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";
import type { Guard } from "../guard.ts";
import type { Requirements } from "../requirements.ts";

/** The part of a context of Koa that a guard uses. */
export interface KoaContextLike {
  readonly req: NodeGuardedRequest;
  readonly originalUrl: string;
  readonly headerSent: boolean;
  status: number;
  body: unknown;
  set(name: string, value: string): unknown;
}

/** Middleware of Koa. */
export type KoaMiddleware = (context: KoaContextLike, next: () => Promise<unknown>) => Promise<unknown>;

/** Calls `next`, or answers. */
export const koaAdapter =
  ({ decide }: Guard, requirements: Requirements): KoaMiddleware =>
  async (context, next) => {
    const decision = await decide(nodeRequest(context.req, context, context.originalUrl), requirements);
    // The application has answered meanwhile.
    if (context.headerSent) return undefined;
    if ("auth" in decision) return next();
    const { status, body } = decision.reply;
    Object.assign(context, { status, body });
    for (const [name, value] of fieldsOf(decision.reply)) context.set(name, value);
    return undefined;
  };
