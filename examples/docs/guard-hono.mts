import { Hono } from "hono";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

const app = new Hono();
app.get("/orders", bearer.hono({ scope: "orders:read" }), (c) => c.json({ of: bearer.authOf(c)?.claims.sub }));
export default app;
