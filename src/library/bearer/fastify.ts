import type { Auth, Guard } from "./guard.ts";
import { type NodeGuardedRequest, nodeRequest } from "./express.ts";
import type { Requirements } from "./requirements.ts";

/** @ts-ignore There is no Fastify where another framework is used. */
declare module "fastify" {
  interface FastifyRequest {
    /** Of a route that `bearer.fastify()` guards. */
    auth: Auth;
  }
}

/** The part of a reply of Fastify that a guard uses. */
export interface FastifyReplyLike {
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  send(body: unknown): unknown;
}

/** A hook of Fastify 4 and 5, such as `onRequest` and `preHandler`. */
export type FastifyHook = (
  request: { readonly raw: NodeGuardedRequest; readonly originalUrl: string },
  reply: FastifyReplyLike,
) => Promise<unknown>;

/** Sets `auth` of the request, or answers. */
export const fastifyFace =
  ({ decide }: Guard, requirements: Requirements): FastifyHook =>
  async (request, reply) => {
    const { originalUrl } = request;
    const decision = await decide(nodeRequest({ ...pick(request.raw), originalUrl }, request), requirements);
    if ("auth" in decision) return void ((request as { auth?: Auth }).auth = decision.auth);
    const { status, headers, body } = decision.reply;
    reply.code(status);
    for (let i = 0; i + 1 < headers.length; i += 2) reply.header(headers[i] as string, headers[i + 1] as string);
    // To the type of a string, Fastify would add a charset.
    return reply.send(new TextEncoder().encode(body ?? ""));
  };

/** Members of a message are getters, which a spread would not copy. */
const pick = ({ method, url, headers, rawHeaders }: NodeGuardedRequest): NodeGuardedRequest => ({
  method,
  url,
  headers,
  rawHeaders,
});
