import { invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import { type Reply, fieldsOf } from "../../../publish/respond.ts";
import type { Decide } from "../guard.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";

/** A request from Express, or from Fastify, which has the Node request in `raw`. */
export interface NestRequest extends NodeGuardedRequest {
  readonly raw?: NodeGuardedRequest;
}

export interface NestResponse {
  readonly headersSent?: boolean;
  readonly raw?: { readonly headersSent: boolean };
  header(name: string, value: string): unknown;
}

/** The part of NestJS's `ExecutionContext` that a guard uses. */
export interface NestContextLike {
  getType(): string;
  switchToHttp(): { getRequest(): NestRequest; getResponse(): NestResponse };
}

/** NestJS's `CanActivate`. */
export interface NestGuard {
  canActivate(this: void, context: NestContextLike): Promise<boolean>;
}

/** Lets the request through, or throws an `HttpException`, so that the application's exception filters see it. */
export function nestAdapter(decide: Decide): NestGuard {
  return {
    async canActivate(context) {
      if (context.getType() !== "http")
        throw invalidOption(`bearer.nest() guards HTTP, and this is ${context.getType()}`);
      const http = context.switchToHttp();
      const [request, response] = [http.getRequest(), http.getResponse()];
      const decision = await decide(nodeRequest(request.raw ?? request, request, request.originalUrl));
      // The application has responded in the meantime.
      if ((response.raw ?? response).headersSent === true) return false;
      if ("auth" in decision) return true;
      // NestJS serializes the body again, with another length.
      for (const [name, value] of fieldsOf(decision.reply)) if (name !== "Content-Length") response.header(name, value);
      throw await exceptionOf(decision.reply);
    },
  };
}

/** @throws ConfigError `ERR_PACKAGE_MISSING` */
async function exceptionOf({ body, status }: Reply): Promise<Error> {
  let nest;
  try {
    nest = await import("@nestjs/common/exceptions/http.exception.js");
  } catch (error) {
    throw importFailure("@nestjs/common", error);
  }
  // Each refusal has problem details.
  return new nest.HttpException(JSON.parse(body ?? "{}") as object, status);
}
