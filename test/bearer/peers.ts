import fastifyJwt from "@fastify/jwt";
import { getRequestListener } from "@hono/node-server";
import express, { type ErrorRequestHandler, type Request, type RequestHandler } from "express";
import { type GetVerificationKey, UnauthorizedError as ExpressJwtError, expressjwt } from "express-jwt";
import {
  InsufficientScopeError,
  InvalidTokenError,
  UnauthorizedError,
  auth,
  claimCheck,
  requiredScopes,
  scopeIncludesAny,
} from "express-oauth2-jwt-bearer";
import fastify, { type FastifyRequest } from "fastify";
import getJwks from "get-jwks";
import { Hono } from "hono";
import { jwk } from "hono/jwk";
import jwksRsa from "jwks-rsa";
import { modAuthOpenidc } from "./apache.ts";
import { audience } from "./guards.ts";
import type { Setup } from "./guards.ts";
import { type StartAdapter, listen } from "./node-adapters.ts";

// Other middlewares, each configured with the options and callbacks in its README, as strictly as they allow. A missing path is a missing feature.

const algorithms = ["ES256", "RS256"];
/** Returns the issuer that a path's guard trusts. */
const issuerAt = ({ issuer, down }: Setup, path: string): string => (path === "/down" ? down : issuer);

/** Creates an Express application with a guard at each path, behind a proxy that terminates TLS. */
function expressApp(guards: Readonly<Record<string, readonly RequestHandler[]>>) {
  const app = express().set("trust proxy", true).set("env", "test").disable("x-powered-by");
  for (const [path, handlers] of Object.entries(guards))
    app.all(path, ...handlers, (_request, response) => void response.end("ok"));
  return app;
}

/** Reports whether the `typ` header is `at+jwt`, `JWT` or missing. */
const isAccessOrPlain = (typ: unknown): boolean =>
  typ === undefined || (typeof typ === "string" && /^(application\/)?(at\+)?jwt$/i.test(typ));

const refused =
  (error: () => Error): RequestHandler =>
  (_request, _response, next) =>
    next(error());

const oauth2JwtBearer: StartAdapter = async (t, setup) => {
  const { issuer, other, down } = setup;
  const guard = (options: object = {}): RequestHandler =>
    auth({ issuerBaseURL: issuer, audience, strict: true, clockTolerance: 0, dpop: { enabled: false }, ...options });
  const dpop = { enabled: true, required: false, iatOffset: 60, iatLeeway: 10 };
  const certificate = {
    getCertificate: ({ headers }: { headers: Record<string, string | undefined> }) =>
      decodeURIComponent(headers["client-cert"] ?? ""),
  };
  const several = { issuerBaseURL: undefined, mcd: { issuers: [issuer, other] } };
  const guards = {
    "/plain": [guard()],
    "/scope": [guard(), requiredScopes("orders:read orders:list")],
    "/any": [guard(), scopeIncludesAny("orders:write orders:read")],
    "/revoked": [guard(), claimCheck((claims) => claims["revoked"] !== true, "the token was revoked")],
    "/denied": [
      guard(),
      refused(() => new InsufficientScopeError(["orders:admin"], "the order belongs to another user")),
    ],
    "/denied/401": [guard(), refused(() => new InvalidTokenError("the session has ended"))],
    "/denied/optional": [guard({ authRequired: false }), refused(() => new UnauthorizedError())],
    "/denied/dpop": [guard({ dpop }), refused(() => new InsufficientScopeError(["orders:admin"]))],
    "/own-keys": [guard({ issuerBaseURL: undefined, issuer, jwksUri: `${issuer}/jwks` })],
    "/oauth": [guard({ issuerBaseURL: `${issuer}/oauth` })],
    "/optional": [guard({ authRequired: false })],
    "/required-claims": [guard({ validators: { cnf: (cnf: unknown) => cnf !== undefined } })],
    "/jwt": [guard({ strict: false, validators: { typ: isAccessOrPlain } })],
    "/several": [guard(several)],
    "/function": [guard({ ...several, mcd: { issuers: () => [issuer] } })],
    "/down": [guard({ issuerBaseURL: down })],
    "/down/several": [guard({ ...several, mcd: { issuers: [issuer, down] } })],
    "/dpop": [guard({ dpop })],
    "/dpop/scope": [guard({ dpop }), requiredScopes("orders:read")],
    "/dpop-required": [guard({ dpop: { ...dpop, required: true } })],
    "/certificate": [guard(certificate)],
  };
  return listen(t, expressApp(guards));
};

interface Jwt {
  readonly payload: Readonly<Record<string, unknown>>;
}

const tokenInCookie = /(?:^|; )token=([^;]*)/;

/** Responds without the stack trace that Express would write. */
const silent: ErrorRequestHandler = (error, _request, response, _next) =>
  void response.status(error.status ?? 500).end();

const secretOf = (issuer: string): GetVerificationKey =>
  jwksRsa.expressJwtSecret({ jwksUri: `${issuer}/jwks`, cache: true, rateLimit: true }) as GetVerificationKey;

const expressJwt: StartAdapter = async (t, setup) => {
  const trusted = [setup.issuer, setup.other];
  const secrets = new Map(trusted.map((issuer) => [issuer, secretOf(issuer)]));
  const several: GetVerificationKey = async (request, token) => {
    const secret = secrets.get(String((token as Jwt | undefined)?.payload["iss"]));
    if (secret === undefined) throw new ExpressJwtError("invalid_token", { message: "the issuer is not trusted" });
    return secret(request, token);
  };
  const options: Readonly<Record<string, object>> = {
    "/plain": {},
    "/own-keys": {},
    "/several": { secret: several, issuer: trusted },
    "/down": {},
    "/optional": { credentialsRequired: false },
    "/cookie": { getToken: ({ headers }: Request) => tokenInCookie.exec(headers.cookie ?? "")?.[1] },
    "/tenant": { isRevoked: (request: Request, token: Jwt) => request.get("x-tenant") !== token.payload["tenant"] },
    "/revoked": { isRevoked: (_request: Request, token: Jwt) => token.payload["revoked"] === true },
  };
  const guards = Object.entries(options).map(([path, more]) => {
    const issuer = issuerAt(setup, path);
    return [
      path,
      [expressjwt({ secret: secretOf(issuer), algorithms: ["ES256", "RS256"], issuer, audience, ...more })],
    ];
  });
  const app = expressApp(Object.fromEntries(guards) as Record<string, RequestHandler[]>);
  return listen(t, app.use(silent));
};

const honoJwk: StartAdapter = async (t, setup) => {
  const app = new Hono();
  app.onError((error, context) =>
    "getResponse" in error ? (error as { getResponse(): Response }).getResponse() : context.body(null, 500),
  );
  const paths: Readonly<Record<string, object>> = {
    "/plain": {},
    "/own-keys": {},
    "/jwt": {},
    "/down": {},
    "/optional": { allow_anon: true },
    "/cookie": { cookie: "token" },
  };
  for (const [path, more] of Object.entries(paths)) {
    const issuer = issuerAt(setup, path);
    const options = {
      ...more,
      jwks_uri: `${issuer}/jwks`,
      alg: algorithms as ["ES256"],
      // Without typ, it accepts JWT and a missing typ.
      verification: { iss: issuer, aud: audience, ...(path !== "/jwt" && { typ: "at+jwt" }) },
    };
    app.all(path, jwk(options), (context) => context.text("ok"));
  }
  return listen(t, getRequestListener(app.fetch));
};

interface FastifyGuard {
  readonly verify?: object;
  readonly typ?: string;
  readonly issuers?: readonly string[];
  readonly trusted?: (request: FastifyRequest, claims: Jwt["payload"]) => boolean;
}

interface DecodedToken extends Jwt {
  readonly header: { readonly kid: string; readonly alg: string };
}

const fastifyGetJwks: StartAdapter = async (t, setup) => {
  const app = fastify();
  t.after(() => app.close());
  const inCookie = { extractToken: ({ headers }: FastifyRequest) => tokenInCookie.exec(headers.cookie ?? "")?.[1] };
  const paths: Readonly<Record<string, FastifyGuard>> = {
    "/plain": {},
    "/own-keys": {},
    "/jwt": { typ: "JWT" },
    "/required-claims": { verify: { requiredClaims: ["exp", "iss", "aud", "sub", "cnf"] } },
    "/several": { issuers: [setup.issuer, setup.other] },
    "/down": {},
    "/cookie": { verify: inCookie },
    "/tenant": { trusted: ({ headers }, claims) => headers["x-tenant"] === claims["tenant"] },
    "/revoked": { trusted: (_request, claims) => claims["revoked"] !== true },
  };
  for (const [path, { verify, typ = "at+jwt", issuers = [issuerAt(setup, path)], trusted }] of Object.entries(paths)) {
    const keys = getJwks({ issuersWhitelist: [...issuers], jwksPath: "/jwks" });
    const secret = (_request: unknown, { header: { kid, alg }, payload }: DecodedToken) =>
      keys.getPublicKey({ kid, alg, domain: issuers.length === 1 ? String(issuers[0]) : String(payload["iss"]) });
    await app.register(async (scope) => {
      await scope.register(fastifyJwt, {
        // In the verify options, checkTyp makes it return 500 for another type.
        decode: { complete: true, checkTyp: typ },
        secret: secret as never,
        verify: {
          algorithms: ["ES256", "RS256"],
          allowedIss: [...issuers],
          allowedAud: audience,
          requiredClaims: ["exp", "iss", "aud"],
          ...verify,
        },
        ...(trusted && { trusted }),
      });
      scope.all(path, { onRequest: (request) => request.jwtVerify() }, () => "ok");
    });
  }
  await app.listen({ port: 0, host: "127.0.0.1" });
  return Number(new URL(app.listeningOrigin).port);
};

export const peers: Readonly<Record<string, StartAdapter>> = {
  "express-oauth2-jwt-bearer": oauth2JwtBearer,
  "express-jwt with jwks-rsa": expressJwt,
  "hono/jwk": honoJwk,
  "@fastify/jwt with get-jwks": fastifyGetJwks,
  mod_auth_openidc: modAuthOpenidc,
};
