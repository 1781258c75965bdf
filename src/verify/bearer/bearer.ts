import { invalidOption } from "../../base/errors.ts";
import { type ExpressMiddleware, expressAdapter } from "./adapters/express.ts";
import { type FastifyHook, fastifyAdapter } from "./adapters/fastify.ts";
import { fetchAdapter } from "./adapters/fetch.ts";
import { type Challenge, createGuard } from "./guard.ts";
import { type HonoMiddleware, honoAdapter } from "./adapters/hono.ts";
import { type KoaMiddleware, koaAdapter } from "./adapters/koa.ts";
import { type TokenVerifier, mcpAdapter } from "./adapters/mcp.ts";
import { type ResourceMetadata, createMetadata } from "./metadata.ts";
import { type NestGuard, nestAdapter } from "./adapters/nest.ts";
import type { BearerOptions } from "./options.ts";
import type { Denial } from "./refusal.ts";
import { type Auth, type Requirements, checkRequirements } from "./requirements.ts";
import { resolveBearerOptions } from "./settings.ts";
import { type UpgradeGuard, upgradeAdapter } from "./adapters/upgrade.ts";

/** Requirements of a route that needs a token. */
type TokenRequired = Requirements & { readonly optional?: false | undefined };

/** A guard for an API: lets requests with a good access token through, and answers the others. */
export interface Bearer {
  /** Middleware for Express 4 and 5, connect and `node:http`. It also sets `auth` of the request, where the MCP SDK looks. */
  express(this: void, requirements?: Requirements): ExpressMiddleware;
  /** A hook for Fastify 4 and 5. */
  fastify(this: void, requirements?: Requirements): FastifyHook;
  /** Middleware for Hono. */
  hono(this: void, requirements?: Requirements): HonoMiddleware;
  /** Middleware for Koa. */
  koa(this: void, requirements?: Requirements): KoaMiddleware;
  /** Guards the `upgrade` event of a `node:http` server, for WebSockets. Returns `false` if the upgrade was refused: it is then answered, and its socket closed. */
  upgrade(this: void, requirements?: Requirements): UpgradeGuard;
  /** A guard of NestJS, on Express and Fastify, for `@UseGuards` and `useGlobalGuards`. */
  nest(this: void, requirements?: Requirements): NestGuard;
  /** The auth of a `Request`, or the `Response` to send. Where a token is optional, `undefined` if none came. */
  check(this: void, request: Request, requirements?: TokenRequired): Promise<Auth | Response>;
  check(this: void, request: Request, requirements: Requirements): Promise<Auth | Response | undefined>;
  /** Who sent a request that this guard let through: that of Express, Fastify, NestJS or `upgrade`, the context of Hono or Koa, the `Request` of `check`. */
  authOf(this: void, request: object): Auth | undefined;
  /**
   * What a handler sends to refuse a request that this guard has let through: 403, or 401 where a new token may help or none came.
   *
   * @example
   * ```ts
   * const { status, headers, body } = bearer.challenge(req, { status: 403, description: "this order is of another tenant" });
   * res.status(status).set(headers).send(body); // or: new Response(body, { status, headers })
   * ```
   *
   * Where no token came, the answer is a 401 without the description, which the event has.
   *
   * @throws ConfigError `ERR_OPTION_INVALID` for another request, and for what is no denial
   */
  challenge(this: void, request: object, denial: Denial): Challenge;
  /**
   * Fetches the keys of all issuers now, such as before the process is ready. If `issuer` is a function, nothing is fetched, and neither is
   * anything for `keys` without a method `refresh` or `reload`.
   *
   * @throws FetchError see `createRemoteKeySet`
   */
  refresh(this: void): Promise<void>;
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
 * keys cannot be had. The token is read from the header `Authorization`, or where the option `token` finds it.
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
  const check = fetchAdapter(guard);
  return Object.freeze({
    express: adapterOf("express", (requirements) => expressAdapter(guard, requirements)),
    fastify: adapterOf("fastify", (requirements) => fastifyAdapter(guard, requirements)),
    hono: adapterOf("hono", (requirements) => honoAdapter(guard, requirements)),
    koa: adapterOf("koa", (requirements) => koaAdapter(guard, requirements)),
    upgrade: adapterOf("upgrade", (requirements) => upgradeAdapter(guard, settings, requirements)),
    nest: adapterOf("nest", (requirements) => nestAdapter(guard, requirements)),
    authOf: guard.authOf,
    check: (async (request, requirements = {}) => check(request, checkRequirements(requirements))) as Bearer["check"],
    challenge: guard.challenge,
    refresh: guard.refresh,
    mcp: () => mcpAdapter(guard, settings),
    metadata: createMetadata(settings),
  } satisfies Bearer);
}

/** A framework calls an adapter that stands at a route without its own call, with a request and more. */
const adapterOf =
  <Adapter>(name: string, make: (requirements: Requirements) => Adapter) =>
  (requirements: Requirements = {}, ...more: readonly unknown[]): Adapter => {
    if (more.length > 0) throw invalidOption(`call bearer.${name}(), and give its result to the route`);
    return make(checkRequirements(requirements));
  };
