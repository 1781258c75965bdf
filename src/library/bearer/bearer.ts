import { invalidOption } from "../../base/errors.ts";
import { type ExpressMiddleware, expressFace } from "./express.ts";
import { type FastifyHook, fastifyFace } from "./fastify.ts";
import { fetchFace } from "./fetch.ts";
import { type Auth, createGuard } from "./guard.ts";
import { type HonoMiddleware, honoFace } from "./hono.ts";
import { type TokenVerifier, mcpFace } from "./mcp.ts";
import { type ResourceMetadata, createMetadata } from "./metadata.ts";
import { type NestGuard, nestFace } from "./nest.ts";
import type { BearerOptions } from "./options.ts";
import { type Requirements, checkRequirements } from "./requirements.ts";
import { resolveBearerOptions } from "./settings.ts";

/** A guard for an API: lets requests with a good access token through, and answers the others. */
export interface Bearer {
  /** Middleware for Express 4 and 5, connect and `node:http`. It also sets `auth` of the request, where the MCP SDK looks. */
  express(this: void, requirements?: Requirements): ExpressMiddleware;
  /** A hook for Fastify 4 and 5. */
  fastify(this: void, requirements?: Requirements): FastifyHook;
  /** Middleware for Hono. */
  hono(this: void, requirements?: Requirements): HonoMiddleware;
  /** A guard of NestJS, on Express and Fastify, for `@UseGuards` and `useGlobalGuards`. */
  nest(this: void, requirements?: Requirements): NestGuard;
  /** The auth of a `Request`, or the `Response` to send. */
  check(this: void, request: Request, requirements?: Requirements): Promise<Auth | Response>;
  /** Who sent a request that this guard let through: that of Express, Fastify or NestJS, the context of Hono, the `Request` of `check`. */
  authOf(this: void, request: object): Auth | undefined;
  /**
   * The `verifier` of `requireBearerAuth` of the MCP SDK.
   *
   * @throws ConfigError `ERR_OPTION_INVALID` when proofs are required
   */
  mcp(this: void): TokenVerifier;
  /** Serves the metadata of the resource at `/.well-known/oauth-protected-resource`. @see RFC 9728 */
  readonly metadata: ResourceMetadata;
}

/**
 * Makes a guard for access tokens: 401 with a challenge to a token that does not hold, 403 to one with too little scope, and 503 while the
 * keys cannot be had. The token is read from the header `Authorization` only.
 *
 * @example
 * ```ts
 * const bearer = createBearer({ issuer: "https://login.example.com", audience: "https://api.example.com" });
 * app.get("/orders", bearer.express({ scope: "orders:read" }), (req, res) => res.json(bearer.authOf(req)?.claims.sub));
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws FetchError `ERR_URL_INSECURE`
 * @see RFC 6750; RFC 9068; RFC 9449; RFC 8705; RFC 9470; RFC 9728
 */
export function createBearer(options: BearerOptions): Bearer {
  const settings = resolveBearerOptions(options);
  const guard = createGuard(settings);
  const check = fetchFace(guard);
  return Object.freeze({
    express: faceOf("express", (requirements) => expressFace(guard, requirements)),
    fastify: faceOf("fastify", (requirements) => fastifyFace(guard, requirements)),
    hono: faceOf("hono", (requirements) => honoFace(guard, requirements)),
    nest: faceOf("nest", (requirements) => nestFace(guard, requirements)),
    authOf: guard.authOf,
    check: async (request, requirements = {}) => check(request, checkRequirements(requirements)),
    mcp: () => mcpFace(guard, settings),
    metadata: createMetadata(settings),
  } satisfies Bearer);
}

/** A framework calls a face that stands at a route without its own call, with a request and more. */
const faceOf =
  <Face>(name: string, make: (requirements: Requirements) => Face) =>
  (requirements: Requirements = {}, ...more: readonly unknown[]): Face => {
    if (more.length > 0) throw invalidOption(`call bearer.${name}(), and give its result to the route`);
    return make(checkRequirements(requirements));
  };
