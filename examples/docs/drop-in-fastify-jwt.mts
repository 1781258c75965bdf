import { KeyObject } from "node:crypto";
import fastifyJwt from "@fastify/jwt";
import fastify from "fastify";
import { type KeyHeader, createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://login.example.com";
const keys = createRemoteKeySet({ issuer });

async function secret(_request: unknown, { header }: { header: KeyHeader }): Promise<string | Buffer> {
  return KeyObject.from(await keys(header)).export({ type: "spki", format: "pem" });
}

const app = fastify();
await app.register(fastifyJwt, {
  decode: { complete: true },
  secret: secret as never, // @fastify/jwt's types do not include the request here
  verify: { algorithms: ["ES256"], allowedIss: issuer, allowedAud: "https://api.example.com", requiredClaims: ["exp"] },
});
app.get("/orders", { onRequest: (request) => request.jwtVerify() }, () => []);
await app.listen({ port: 3001 });
