import { KeyObject } from "node:crypto";
import type { AddressInfo } from "node:net";
import express, { type RequestHandler } from "express";
import { type GetVerificationKey, expressjwt } from "express-jwt";
import jwksRsa from "jwks-rsa";
import { verify } from "../../src/index.ts";
import { createBearerGuard } from "../../src/verify/bearer/index.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { listening } from "./setup.ts";

// One Express route behind a guard. Arguments: the guard's name and the issuer.

const [, , variant = "", issuer = ""] = process.argv;
const audience = "https://api.example.com";
// Its types would add an optional auth to all Express requests, so they are not imported.
const peer = "express-oauth2-jwt-bearer";

function verifyAlone(): RequestHandler {
  const options = { keys: createRemoteKeySet({ issuer }), issuer, audience, algorithms: ["ES256"], typ: "at+jwt" };
  return async ({ headers }, _response, next) => {
    await verify((headers.authorization ?? "").slice("Bearer ".length), options);
    next();
  };
}

function expressJwt(secret: GetVerificationKey): RequestHandler {
  return expressjwt({ secret, algorithms: ["ES256"], issuer, audience });
}

const guards: Readonly<Record<string, () => Promise<RequestHandler> | RequestHandler>> = {
  open: () => (_request, _response, next) => next(),
  jwksd: () => createBearerGuard({ issuer, audience }).express({ scope: "orders:read" }),
  verify: verifyAlone,
  "express-oauth2-jwt-bearer": async () => {
    const { auth } = (await import(peer)) as { auth: (options: object) => RequestHandler };
    return auth({ issuerBaseURL: issuer, audience, dpop: { enabled: false } });
  },
  "express-jwt with jwks-rsa": () =>
    expressJwt(jwksRsa.expressJwtSecret({ jwksUri: `${issuer}/jwks`, cache: true }) as GetVerificationKey),
  "express-jwt with jwksd": () => {
    const keys = createRemoteKeySet({ issuer });
    return expressJwt(async (_request, token) => KeyObject.from(await keys(token?.header ?? {})));
  },
};

const app = express().disable("x-powered-by").disable("etag");
const guard = await guards[variant]?.();
if (guard === undefined) throw new Error(`there is no guard "${variant}"`);
app.get("/jwks", guard, (_request, response) => void response.end("ok"));
const server = app.listen(0, "127.0.0.1", () => listening((server.address() as AddressInfo).port));
