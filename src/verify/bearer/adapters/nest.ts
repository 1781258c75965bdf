import { invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import { type Reply, fieldsOf } from "../../../publish/respond.ts";
import type { Decide } from "../access-decision.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";

/** A request from Express or Fastify. In Fastify, `raw` is the Node request. */
export interface NestRequest extends NodeGuardedRequest {
  readonly raw?: NodeGuardedRequest;
}

/** The part of a response that a guard uses. In Fastify, `raw` is the Node response. */
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

/**
 * Creates a guard that either lets the request through or throws an `HttpException` for the application's exception
 * filters.
 */
export function nestAdapter(decide: Decide): NestGuard {
  return {
    async canActivate(context) {
      if (context.getType() !== "http")
        throw invalidOption(`bearer.nest() guards only HTTP, not ${context.getType()}; use it on HTTP handlers`);
      const http = context.switchToHttp();
      const [request, response] = [http.getRequest(), http.getResponse()];
      const decision = await decide(nodeRequest(request.raw ?? request, request, request.originalUrl));
      // The application may have responded in the meantime.
      if ((response.raw ?? response).headersSent === true) return false;
      if ("auth" in decision) return true;
      // NestJS reserializes the body, which changes its length.
      for (const [name, value] of fieldsOf(decision.reply)) if (name !== "Content-Length") response.header(name, value);
      throw await exceptionOf(decision.reply);
    },
  };
}

/** Returns the exception for a refusal. @throws ConfigError `ERR_PACKAGE_MISSING` */
async function exceptionOf({ body, status }: Reply): Promise<Error> {
  let nest;
  try {
    nest = await import("@nestjs/common/exceptions/http.exception.js");
  } catch (error) {
    throw importFailure("@nestjs/common", error);
  }
  // A refusal's body is problem details in JSON.
  return new nest.HttpException(JSON.parse(body ?? "{}") as object, status);
}
