import { invalidOption } from "../../base/errors.ts";
import { type Challenge, type Decide, createGuard } from "./access-decision.ts";
import { type ExpressMiddleware, expressAdapter } from "./adapters/express.ts";
import { type FastifyHook, fastifyAdapter } from "./adapters/fastify.ts";
import { checkRequest } from "./adapters/fetch.ts";
import { type HonoMiddleware, honoAdapter } from "./adapters/hono.ts";
import { type KoaMiddleware, koaAdapter } from "./adapters/koa.ts";
import { type McpTokenVerifier, mcpAdapter } from "./adapters/mcp.ts";
import { type NestGuard, nestAdapter } from "./adapters/nest.ts";
import { type UpgradeGuard, upgradeAdapter } from "./adapters/upgrade.ts";
import { type ResourceMetadataHandlers, createMetadata } from "./metadata.ts";
import type { ApplicationDenial } from "./refusal.ts";
import { type VerifiedAccessToken, type Requirements, checkRequirements } from "./requirements.ts";
import { resolveBearerOptions } from "./settings.ts";
import type { BearerGuardOptions } from "./types.ts";

/** Requirements for a route that requires a token. */
type TokenRequired = Requirements & { readonly optional?: false | undefined };

/** A guard for an API. It lets through requests with a valid access token and refuses all others. */
export interface BearerGuard {
  /**
   * Creates middleware for Express 4 and 5, Connect and `node:http`. It also sets the request's `auth` property, which
   * the MCP SDK reads.
   */
  express(this: void, requirements?: Requirements): ExpressMiddleware;
  /** Creates a hook for Fastify 4 and 5. */
  fastify(this: void, requirements?: Requirements): FastifyHook;
  /** Creates middleware for Hono. */
  hono(this: void, requirements?: Requirements): HonoMiddleware;
  /** Creates middleware for Koa. */
  koa(this: void, requirements?: Requirements): KoaMiddleware;
  /**
   * Creates a guard for the `upgrade` event of a `node:http` server, for WebSockets. If it refuses the upgrade, it
   * responds, closes the socket and returns `false`.
   */
  upgrade(this: void, requirements?: Requirements): UpgradeGuard;
  /** Creates a NestJS guard for `@UseGuards` and `useGlobalGuards`. Works on Express and Fastify. */
  nest(this: void, requirements?: Requirements): NestGuard;
  /**
   * Returns the auth of a `Request`, or the `Response` to send. Returns `undefined` if the token is optional and
   * missing.
   */
  check(this: void, request: Request, requirements?: TokenRequired): Promise<VerifiedAccessToken | Response>;
  check(this: void, request: Request, requirements: Requirements): Promise<VerifiedAccessToken | Response | undefined>;
  /**
   * Returns the auth of a request that this guard has let through. Accepts the request from Express, Fastify, NestJS,
   * `upgrade` or `check`, or the context from Hono or Koa.
   */
  authOf(this: void, request: object): VerifiedAccessToken | undefined;
  /**
   * Returns the response with which a handler can refuse a request that this guard has let through. The response is a
   * 403, or a 401 if there was no token or if a new token may help.
   *
   * @example
   * ```ts
   * const { status, headers, body } = bearer.challenge(req, { status: 403, description: "this order belongs to another tenant" });
   * res.status(status).set(headers).send(body); // or: new Response(body, { status, headers })
   * ```
   *
   * If there was no token, the 401 does not contain the description; only the event does.
   *
   * @throws ConfigError `ERR_OPTION_INVALID` if the guard did not let this request through, or if the denial is invalid
   */
  challenge(this: void, request: object, denial: ApplicationDenial): Challenge;
  /**
   * Fetches all issuers' keys immediately, for example before the process reports that it is ready. Does nothing if
   * `issuer` is a function, or for `keys` that have neither `refresh()` nor `reload()`.
   *
   * @throws FetchError, for the same reasons as `createRemoteKeySet`
   */
  refresh(this: void): Promise<void>;
  /**
   * Returns the `verifier` option for `requireBearerAuth` from the MCP SDK.
   *
   * @throws ConfigError `ERR_OPTION_INVALID` if proofs are required
   */
  mcp(this: void): McpTokenVerifier;
  /** Handlers that serve the resource's metadata at `/.well-known/oauth-protected-resource`. @see RFC 9728 */
  readonly metadata: ResourceMetadataHandlers;
}

/**
 * Creates a guard for access tokens. For an invalid token, it responds with 401 and a challenge; for a token whose
 * scope is insufficient, with 403; and while the keys are unavailable, with 503. It reads the token from the
 * `Authorization` header, unless the `token` option finds it elsewhere.
 *
 * @example
 * ```ts
 * const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });
 * app.get("/orders", bearer.express({ scope: "orders:read" }), (req, res) => res.json(bearer.authOf(req)?.claims.sub));
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws FetchError `ERR_URL_INSECURE`
 * @see RFC 6750; RFC 9068; RFC 9449; RFC 8705; RFC 9470; RFC 9728
 */
export function createBearerGuard(options: BearerGuardOptions): BearerGuard {
  const settings = resolveBearerOptions(options);
  const guard = createGuard(settings);

  function decideFor(requirements: Requirements): Decide {
    const checked = checkRequirements(requirements);
    return (request) => guard.decide(request, checked);
  }
  const adapterOf =
    <Adapter>(name: string, create: (decide: Decide) => Adapter) =>
    (requirements: Requirements = {}, ...more: readonly unknown[]): Adapter => {
      // If an adapter is passed to a framework without being called, the framework calls it with a request and more
      // arguments.
      if (more.length > 0) throw invalidOption(`bearer.${name} is not middleware; pass the result of bearer.${name}()`);
      return create(decideFor(requirements));
    };

  async function check(request: Request, requirements?: TokenRequired): Promise<VerifiedAccessToken | Response>;
  async function check(
    request: Request,
    requirements: Requirements,
  ): Promise<VerifiedAccessToken | Response | undefined>;
  async function check(request: Request, requirements: Requirements = {}) {
    return checkRequest(decideFor(requirements), request);
  }

  return Object.freeze({
    express: adapterOf("express", expressAdapter),
    fastify: adapterOf("fastify", fastifyAdapter),
    hono: adapterOf("hono", honoAdapter),
    koa: adapterOf("koa", koaAdapter),
    upgrade: adapterOf("upgrade", (decide) => upgradeAdapter(decide, settings.clock)),
    nest: adapterOf("nest", nestAdapter),
    authOf: guard.authOf,
    check,
    challenge: guard.challenge,
    refresh: guard.refresh,
    mcp: () => mcpAdapter(guard, settings),
    metadata: createMetadata(settings),
  } satisfies BearerGuard);
}
