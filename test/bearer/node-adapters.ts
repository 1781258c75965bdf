import { type IncomingMessage, type RequestListener, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { getRequestListener } from "@hono/node-server";
import type { AbstractHttpAdapter } from "@nestjs/core";
import { ExpressAdapter } from "@nestjs/platform-express";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import { Elysia } from "elysia";
import express5 from "express";
// @ts-expect-error There are no types under this name.
import express4 from "express4";
import fastify5 from "fastify";
import fastify4 from "fastify4";
import { H3, toNodeHandler } from "h3";
import { NextRequest } from "next/server.js";
import type { KoaContextLike } from "../../src/verify/bearer/adapters/koa.ts";
import { listening } from "../support/listening.ts";
import { fetchApp } from "./fetch-app.ts";
import { type GuardedPath, type Setup, answerOf, guardsOf, metadataOf } from "./guards.ts";
import { type NestHandler, nestApp } from "./nest-app.ts";

/** Starts an API and returns its port. */
export type StartAdapter = (t: TestContext, setup: Setup) => Promise<number>;

export const listen = (t: TestContext, listener: RequestListener): Promise<number> =>
  listening(t, createServer(listener));

/** Starts the API in Express 4 or 5, which have the same methods. */
const expressAdapter =
  (express: typeof express5): StartAdapter =>
  (t, setup) => {
    const app = express().disable("x-powered-by").disable("etag");
    app.use(metadataOf(setup).node);
    for (const [path, guarded] of Object.entries(guardsOf(setup))) {
      app.all(path, guarded.bearer.express(guarded.requirements), (request, response) => {
        const { status, headers, body } = answerOf(guarded, request);
        response.status(status).set(headers).send(body);
      });
    }
    return listen(t, app);
  };

/** Starts the API in Fastify 4 or 5, which have the same methods. */
const fastifyAdapter =
  (fastify: typeof fastify5): StartAdapter =>
  async (t, setup) => {
    const app = fastify();
    t.after(() => app.close());
    for (const [path, guarded] of Object.entries(guardsOf(setup))) {
      app.all(path, { preHandler: guarded.bearer.fastify(guarded.requirements) }, (request, reply) => {
        const { status, headers, body } = answerOf(guarded, request);
        return reply.code(status).headers(headers).send(body);
      });
    }
    const { node } = metadataOf(setup);
    app.all("/.well-known/*", (request, reply) => {
      reply.hijack();
      node(request.raw, reply.raw);
    });
    await app.listen({ port: 0, host: "127.0.0.1" });
    return (app.server.address() as AddressInfo).port;
  };

type Context = KoaContextLike & {
  readonly path: string;
  readonly res: ServerResponse;
  respond: boolean;
  set(fields: object): void;
};

const koaAdapter: StartAdapter = async (t, setup) => {
  // @ts-expect-error There are no types for Koa.
  const { default: Koa } = await import("koa");
  const app = new Koa();
  const guards = guardsOf(setup);
  const metadata = metadataOf(setup);
  app.use((context: Context) => {
    const guarded = guards[context.path];
    if (guarded === undefined) {
      context.respond = false;
      return metadata.node(context.req, context.res);
    }
    return guarded.bearer.koa(guarded.requirements)(context, async () => {
      const { status, headers, body } = answerOf(guarded, context);
      context.set(headers);
      Object.assign(context, { status, body });
    });
  });
  return listen(t, app.callback());
};

function respond(guarded: GuardedPath, request: IncomingMessage, response: ServerResponse): void {
  const { status, headers, body } = answerOf(guarded, request);
  response.writeHead(status, { ...headers, "Content-Length": body.length }).end(body);
}

/** Treats each request as an upgrade: the response is what the guard writes to the socket. */
const upgradeAdapter: StartAdapter = (t, setup) => {
  const guards = guardsOf(setup);
  const metadata = metadataOf(setup);
  return listen(t, async (request, response) => {
    const guarded = guards[new URL(request.url ?? "/", "http://localhost").pathname];
    if (guarded === undefined) return metadata.node(request, response);
    if (await guarded.bearer.upgrade(guarded.requirements)(request, request.socket))
      respond(guarded, request, response);
  });
};

const nodeAdapter: StartAdapter = (t, setup) => {
  const metadata = metadataOf(setup);
  const guards = guardsOf(setup);
  return listen(t, (request, response) => {
    const guarded = guards[new URL(request.url ?? "/", "http://localhost").pathname];
    if (guarded === undefined) return metadata.node(request, response);
    return guarded.bearer.express(guarded.requirements)(request, response, () => respond(guarded, request, response));
  });
};

/** Starts the API in NestJS, which adds a charset to an exception's media type. */
const nestAdapter =
  (adapter: () => AbstractHttpAdapter): StartAdapter =>
  (t, setup) => {
    const routes = Object.entries(guardsOf(setup)).map(([path, guarded]) => {
      const handler: NestHandler = (request, response) => {
        const { status, headers, body } = answerOf(guarded, request);
        response.status(status);
        for (const [name, value] of Object.entries(headers)) response.header(name, value);
        return body;
      };
      return [path, { guard: guarded.bearer.nest(guarded.requirements), handler }] as const;
    });
    return nestApp(t, adapter(), Object.fromEntries(routes), metadataOf(setup).node);
  };

const nestExpress = (): AbstractHttpAdapter => new ExpressAdapter(express5().disable("x-powered-by").disable("etag"));

const honoAdapter: StartAdapter = (t, setup) => listen(t, getRequestListener(fetchApp(setup, "hono")));

/** Starts the API in a framework that passes its own kind of `Request` to `check`. */
const checkAdapter =
  (mount: (check: (request: Request) => Promise<Response>) => RequestListener): StartAdapter =>
  (t, setup) =>
    listen(t, mount(fetchApp(setup, "check")));

/** The adapters that run in a Node process. */
export const nodeAdapters: Readonly<Record<string, StartAdapter>> = {
  "Express 5": expressAdapter(express5),
  "Express 4": expressAdapter(express4),
  "Fastify 5": fastifyAdapter(fastify5),
  "Fastify 4": fastifyAdapter(fastify4 as unknown as typeof fastify5),
  "node:http": nodeAdapter,
  Koa: koaAdapter,
  "an upgrade of node:http": upgradeAdapter,
  "NestJS on Express": nestAdapter(nestExpress),
  "NestJS on Fastify": nestAdapter(() => new FastifyAdapter()),
  "Hono on Node": honoAdapter,
  "check() on Node": checkAdapter(getRequestListener),
  "check() in h3": checkAdapter((check) => toNodeHandler(new H3().all("/**", ({ req }) => check(req)))),
  "check() in Elysia": checkAdapter((check) =>
    getRequestListener(new Elysia().all("*", ({ request }) => check(request)).fetch),
  ),
  "check() in Next.js": checkAdapter((check) =>
    getRequestListener(({ url, method, headers }) => check(new NextRequest(url, { method, headers }))),
  ),
};
