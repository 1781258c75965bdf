import type { AddressInfo } from "node:net";
import { fastify } from "fastify";
import { listening, expectedReplies } from "./setup.ts";

const { text, etag, headers, notModifiedHeaders } = await expectedReplies();
const body = Buffer.from(text);

const app = fastify();
app.get("/jwks", (request, reply) => {
  if (request.headers["if-none-match"] === etag) return reply.code(304).headers(notModifiedHeaders).send();
  return reply.headers(headers).send(body);
});
await app.listen({ port: 0, host: "127.0.0.1" });
listening((app.server.address() as AddressInfo).port);
