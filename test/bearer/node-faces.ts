import { type RequestListener, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { getRequestListener } from "@hono/node-server";
import type { AbstractHttpAdapter } from "@nestjs/core";
import { ExpressAdapter } from "@nestjs/platform-express";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import express5 from "express";
// @ts-expect-error There are no types for it under this name.
import express4 from "express4";
import fastify5 from "fastify";
import fastify4 from "fastify4";
import type { KoaContextLike } from "../../src/library/bearer/index.ts";
import { fetchApp } from "./fetch-app.ts";
import { type Setup, guardsOf, metadataOf } from "./guards.ts";
import { nestApp } from "./nest-app.ts";
import { listening } from "../support/listening.ts";

/** Starts an API; gives its port. */
export type StartFace = (t: TestContext, setup: Setup) => Promise<number>;

export const listen = (t: TestContext, listener: RequestListener): Promise<number> =>
  listening(t, createServer(listener));

/** Of Express 4 and 5, which have the same methods. */
const expressFace =
  (express: typeof express5): StartFace =>
  (t, setup) => {
    const app = express().disable("x-powered-by").disable("etag");
    app.use(metadataOf(setup).node);
    for (const [path, { bearer, requirements }] of Object.entries(guardsOf(setup))) {
      app.all(path, bearer.express(requirements), (request, response) => {
        response.end(JSON.stringify({ sub: bearer.authOf(request)?.claims.sub }));
      });
    }
    return listen(t, app);
  };

/** Of Fastify 4 and 5, which have the same methods. */
const fastifyFace =
  (fastify: typeof fastify5): StartFace =>
  async (t, setup) => {
    const app = fastify();
    t.after(() => app.close());
    for (const [path, { bearer, requirements }] of Object.entries(guardsOf(setup))) {
      app.all(path, { preHandler: bearer.fastify(requirements) }, (request) =>
        JSON.stringify({ sub: bearer.authOf(request)?.claims.sub }),
      );
    }
    const { node } = metadataOf(setup);
    app.all("/.well-known/*", (request, reply) => {
      reply.hijack();
      node(request.raw, reply.raw);
    });
    await app.listen({ port: 0, host: "127.0.0.1" });
    return (app.server.address() as AddressInfo).port;
  };

const koaFace: StartFace = async (t, setup) => {
  // @ts-expect-error There are no types for it.
  const { default: Koa } = await import("koa");
  const app = new Koa();
  const guards = guardsOf(setup);
  const metadata = metadataOf(setup);
  app.use((context: KoaContextLike & { path: string; res: ServerResponse; respond: boolean }) => {
    const guarded = guards[context.path];
    if (guarded === undefined) {
      context.respond = false;
      return metadata.node(context.req, context.res);
    }
    const { bearer, requirements } = guarded;
    return bearer.koa(requirements)(context, async () => {
      context.body = JSON.stringify({ sub: bearer.authOf(context)?.claims.sub });
    });
  });
  return listen(t, app.callback());
};

/** Each request as if it were an upgrade: what the guard writes to the socket is the response. */
const upgradeFace: StartFace = (t, setup) => {
  const guards = guardsOf(setup);
  const metadata = metadataOf(setup);
  return listen(t, async (request, response) => {
    const guarded = guards[new URL(request.url ?? "/", "http://localhost").pathname];
    if (guarded === undefined) return metadata.node(request, response);
    const { bearer, requirements } = guarded;
    if (await bearer.upgrade(requirements)(request, request.socket))
      response.end(JSON.stringify({ sub: bearer.authOf(request)?.claims.sub }));
  });
};

const nodeFace: StartFace = (t, setup) => {
  const metadata = metadataOf(setup);
  const guards = guardsOf(setup);
  return listen(t, (request, response) => {
    const guarded = guards[new URL(request.url ?? "/", "http://localhost").pathname];
    if (guarded === undefined) return metadata.node(request, response);
    const { bearer, requirements } = guarded;
    return bearer.express(requirements)(request, response, () =>
      response.end(JSON.stringify({ sub: bearer.authOf(request)?.claims.sub })),
    );
  });
};

/** Of NestJS, which adds a charset to the type of an exception. */
const nestFace =
  (adapter: () => AbstractHttpAdapter): StartFace =>
  (t, setup) => {
    const routes = Object.entries(guardsOf(setup)).map(([path, { bearer, requirements }]) => {
      const handler = (request: object): string => JSON.stringify({ sub: bearer.authOf(request)?.claims.sub });
      return [path, { guard: bearer.nest(requirements), handler }] as const;
    });
    return nestApp(t, adapter(), Object.fromEntries(routes), metadataOf(setup).node);
  };

const nestExpress = (): AbstractHttpAdapter => new ExpressAdapter(express5().disable("x-powered-by").disable("etag"));

const honoFace =
  (face: "check" | "hono"): StartFace =>
  (t, setup) =>
    listen(t, getRequestListener(fetchApp(setup, face)));

/** All that run in a process of Node. */
export const nodeFaces: Readonly<Record<string, StartFace>> = {
  "Express 5": expressFace(express5),
  "Express 4": expressFace(express4),
  "Fastify 5": fastifyFace(fastify5),
  "Fastify 4": fastifyFace(fastify4 as unknown as typeof fastify5),
  "node:http": nodeFace,
  Koa: koaFace,
  "an upgrade of node:http": upgradeFace,
  "NestJS on Express": nestFace(nestExpress),
  "NestJS on Fastify": nestFace(() => new FastifyAdapter()),
  "Hono on Node": honoFace("hono"),
  "check() on Node": honoFace("check"),
};
