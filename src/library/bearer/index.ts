/**
 * A guard for APIs that take access tokens, for Express, Fastify, Hono, NestJS, `fetch` and MCP.
 *
 * @module jwksd/bearer
 */

export { type ErrorCode, ConfigError, FetchError, JwksdError, TokenError } from "../../base/errors.ts";
export type { SetIfAbsent } from "../client/replay.ts";
export { memoryReplayStore } from "../client/replay.ts";
export type { KeySetEvent, RemoteKeySetOptions } from "../relying-party/options.ts";
export type { KeySetState } from "../relying-party/stored.ts";
export { type Bearer, createBearer } from "./bearer.ts";
export type { ExpressMiddleware, NodeGuardedRequest } from "./express.ts";
export type { FastifyHook, FastifyReplyLike } from "./fastify.ts";
export type { Auth } from "./guard.ts";
export type { HonoContextLike, HonoMiddleware } from "./hono.ts";
export type { TokenVerifier } from "./mcp.ts";
export type { ResourceMetadata } from "./metadata.ts";
export type { NestContextLike, NestGuard, NestRequest, NestResponse } from "./nest.ts";
export type { BearerEvent, BearerOptions, StateStore, TrustedIssuer } from "./options.ts";
export type { Requirements } from "./requirements.ts";
