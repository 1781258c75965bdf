/**
 * A guard for APIs that accept access tokens, for Express, Fastify, Hono, Koa, NestJS, `fetch`, WebSockets and MCP.
 *
 * @module jwksd/bearer
 */

export { type JwksdErrorCode, ConfigError, FetchError, JwksdError, TokenError } from "../../base/errors.ts";
export type { SetIfAbsent } from "../client/replay-store.ts";
export { memoryReplayStore } from "../client/replay-store.ts";
export type { KeySetEvent, RemoteKeySetOptions } from "../relying-party/options.ts";
export type { KeySetState } from "../relying-party/cached-key-set.ts";
export { type BearerGuard, createBearerGuard } from "./bearer-guard.ts";
export type { ExpressMiddleware } from "./adapters/express.ts";
export type { FastifyHook } from "./adapters/fastify.ts";
export type { Challenge } from "./access-decision.ts";
export type { HonoMiddleware } from "./adapters/hono.ts";
export type { KoaMiddleware } from "./adapters/koa.ts";
export type { McpTokenVerifier } from "./adapters/mcp.ts";
export type { ResourceMetadataHandlers } from "./metadata.ts";
export type { NestGuard } from "./adapters/nest.ts";
export type { BearerGuardEvent, BearerGuardOptions, KeySetStateStore, TrustedIssuer } from "./types.ts";
export type { ApplicationDenial } from "./refusal.ts";
export type { VerifiedAccessToken, Requirements } from "./requirements.ts";
export type { UpgradeGuard } from "./adapters/upgrade.ts";
export type { NodeGuardedRequest } from "./adapters/node-request.ts";
