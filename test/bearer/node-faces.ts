import { type RequestListener, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { getRequestListener } from "@hono/node-server";
import express5 from "express";
// @ts-expect-error There are no types for it under this name.
import express4 from "express4";
import fastify5 from "fastify";
import fastify4 from "fastify4";
import type { ExpressMiddleware } from "../../src/library/bearer/index.ts";
import { fetchApp } from "./fetch-app.ts";
import { type Setup, guardsOf, metadataOf } from "./guards.ts";
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
        response.end(JSON.stringify({ sub: request.auth.claims.sub }));
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
      app.all(path, { preHandler: bearer.fastify(requirements) }, ({ auth }) =>
        JSON.stringify({ sub: auth.claims.sub }),
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

const nodeFace: StartFace = (t, setup) => {
  const metadata = metadataOf(setup);
  const guards = Object.entries(guardsOf(setup)).map(([path, { bearer, requirements }]) => [
    path,
    bearer.express(requirements),
  ]);
  const byPath = Object.fromEntries(guards) as Readonly<Record<string, ExpressMiddleware>>;
  return listen(t, (request, response) => {
    const guard = byPath[new URL(request.url ?? "/", "http://localhost").pathname];
    if (guard === undefined) return metadata.node(request, response);
    return void guard(request, response, () => {
      const { auth } = request as unknown as Express.Request;
      response.end(JSON.stringify({ sub: auth.claims.sub }));
    });
  });
};

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
  "Hono on Node": honoFace("hono"),
  "check() on Node": honoFace("check"),
};
