import { fieldsOf } from "../../../publish/respond.ts";
import type { Decide } from "../access-decision.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";

/** The part of a Fastify reply that a guard uses. */
export interface FastifyReplyLike {
  readonly raw: { readonly headersSent: boolean };
  hijack(): unknown;
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  send(body: unknown): unknown;
}

/** A hook for Fastify 4 and 5, such as `onRequest` or `preHandler`. */
export type FastifyHook = (
  request: { readonly raw: NodeGuardedRequest; readonly originalUrl: string },
  reply: FastifyReplyLike,
) => Promise<unknown>;

/** Creates a hook that either lets the request through or responds. */
export const fastifyAdapter =
  (decide: Decide): FastifyHook =>
  async (request, reply) => {
    const decision = await decide(nodeRequest(request.raw, request, request.originalUrl));
    // If the application has responded in the meantime, Fastify must not respond again or call the handler.
    if (reply.raw.headersSent) return reply.hijack();
    if ("auth" in decision) return undefined;
    const { status, body } = decision.reply;
    reply.code(status);
    for (const [name, value] of fieldsOf(decision.reply)) reply.header(name, value);
    // Sent as bytes, because Fastify would add a charset to the Content-Type of a string.
    return reply.send(new TextEncoder().encode(body ?? ""));
  };
