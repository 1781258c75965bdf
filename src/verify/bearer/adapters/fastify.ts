import { fieldsOf } from "../../../publish/respond.ts";
import type { Guard } from "../guard.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";
import type { Requirements } from "../requirements.ts";

/** The part of a reply of Fastify that a guard uses. */
export interface FastifyReplyLike {
  readonly raw: { readonly headersSent: boolean };
  hijack(): unknown;
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  send(body: unknown): unknown;
}

/** A hook of Fastify 4 and 5, such as `onRequest` and `preHandler`. */
export type FastifyHook = (
  request: { readonly raw: NodeGuardedRequest; readonly originalUrl: string },
  reply: FastifyReplyLike,
) => Promise<unknown>;

/** Lets the request through, or answers. */
export const fastifyAdapter =
  ({ decide }: Guard, requirements: Requirements): FastifyHook =>
  async (request, reply) => {
    const decision = await decide(nodeRequest(request.raw, request, request.originalUrl), requirements);
    // The application has answered meanwhile. Fastify must neither answer as well nor call the handler.
    if (reply.raw.headersSent) return reply.hijack();
    if ("auth" in decision) return undefined;
    const { status, body } = decision.reply;
    reply.code(status);
    for (const [name, value] of fieldsOf(decision.reply)) reply.header(name, value);
    // To the type of a string, Fastify would add a charset.
    return reply.send(new TextEncoder().encode(body ?? ""));
  };
