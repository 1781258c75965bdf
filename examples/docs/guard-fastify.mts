import fastify from "fastify";
import { createBearer } from "jwksd/bearer";

const bearer = createBearer({ issuer: "https://login.example.com", audience: "https://api.example.com" });

const app = fastify();
const preHandler = bearer.fastify({ scope: "orders:read" });
app.get("/orders", { preHandler }, ({ auth }) => ({ of: auth.claims.sub }));
await app.listen({ port: 3000 });
