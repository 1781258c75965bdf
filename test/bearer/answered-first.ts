import type { ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import type { AbstractHttpAdapter } from "@nestjs/core";
import { ExpressAdapter } from "@nestjs/platform-express";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import express5 from "express";
// @ts-expect-error There are no types for it under this name.
import express4 from "express4";
import fastify5 from "fastify";
import fastify4 from "fastify4";
import type { Bearer } from "../../src/verify/bearer/index.ts";
import { nestApp } from "./nest-app.ts";
import { listen } from "./node-faces.ts";

/** Starts an application with one guarded route; gives its port. `began` gets each response before the guard sees the request. */
type Start = (
  t: TestContext,
  bearer: Bearer,
  began: (response: ServerResponse) => void,
  handled: () => string,
) => Promise<number>;

const onExpress =
  (express: typeof express5): Start =>
  (t, bearer, began, handled) => {
    const app = express().use((_request, response, next) => {
      began(response);
      next();
    });
    return listen(
      t,
      app.get("/", bearer.express(), (_request, response) => void response.end(handled())),
    );
  };

const onFastify =
  (fastify: typeof fastify5): Start =>
  async (t, bearer, began, handled) => {
    const app = fastify();
    t.after(() => app.close());
    app.addHook("onRequest", async (_request, reply) => began(reply.raw));
    app.get("/", { onRequest: bearer.fastify() }, handled);
    await app.listen({ port: 0, host: "127.0.0.1" });
    return (app.server.address() as AddressInfo).port;
  };

const onNest =
  (adapter: () => AbstractHttpAdapter): Start =>
  (t, bearer, began, handled) => {
    const middleware = (_request: unknown, response: ServerResponse, next: () => void): void => {
      began(response);
      next();
    };
    return nestApp(t, adapter(), { "/": { guard: bearer.nest(), handler: handled } }, middleware);
  };

/** Applications that may answer while their guard waits. */
export const applications: Readonly<Record<string, Start>> = {
  "Express 5": onExpress(express5),
  "Express 4": onExpress(express4),
  "Fastify 5": onFastify(fastify5),
  "Fastify 4": onFastify(fastify4 as unknown as typeof fastify5),
  "NestJS on Express": onNest(() => new ExpressAdapter()),
  "NestJS on Fastify": onNest(() => new FastifyAdapter()),
  "node:http": (t, bearer, began, handled) =>
    listen(t, (request, response) => {
      began(response);
      bearer.express()(request, response, () => response.end(handled()));
    }),
  "metadata in node:http": (t, bearer, began) =>
    listen(t, (request, response) => {
      bearer.metadata.node(Object.assign(request, { url: "/.well-known/oauth-protected-resource" }), response);
      began(response);
      response.end("first");
    }),
};
