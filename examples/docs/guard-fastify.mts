import fastify from "fastify";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

const app = fastify();
const onRequest = bearer.fastify({ scope: "orders:read" });
app.get("/orders", { onRequest }, (request) => ({ of: bearer.authOf(request)?.claims.sub }));
await app.listen({ port: 3001 });
