import "reflect-metadata";
import type { TestContext } from "node:test";
import { All, Controller, Module, Req, Res, UseGuards } from "@nestjs/common";
import { type AbstractHttpAdapter, NestFactory } from "@nestjs/core";
import type { NestResponse } from "../../src/verify/bearer/adapters/nest.ts";
import type { NestGuard } from "../../src/verify/bearer/index.ts";

export type NestHandler = (request: object, response: NestResponse & { status(code: number): unknown }) => string;

/** A handler behind its guard. */
interface Route {
  readonly guard: NestGuard;
  readonly handler: NestHandler;
}

/** Starts a NestJS application and returns its port. It calls the decorators as functions, because Node does not run decorators. */
export async function nestApp(
  t: TestContext,
  adapter: AbstractHttpAdapter,
  routes: Readonly<Record<string, Route>>,
  middleware: unknown,
): Promise<number> {
  class Routes {
    readonly name = "routes";
  }
  class App {
    readonly name = "app";
  }
  for (const [path, { guard, handler: value }] of Object.entries(routes)) {
    Object.defineProperty(Routes.prototype, path, { value });
    Req()(Routes.prototype, path, 0);
    Res({ passthrough: true })(Routes.prototype, path, 1);
    for (const decorate of [All(path), UseGuards(guard)]) decorate(Routes.prototype, path, { value });
  }
  Controller()(Routes);
  Module({ controllers: [Routes] })(App);
  const app = await NestFactory.create(App, adapter, { logger: false });
  t.after(() => app.close());
  app.use(middleware);
  await app.listen(0, "127.0.0.1");
  return Number(new URL(await app.getUrl()).port);
}
