import express, { type Request } from "express";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({
  issuer: ["https://login.example.com", "https://partner.example.org"],
  audience: "https://api.example.com",
});

const app = express();

// One of several scopes
app.get("/orders", bearer.express({ scope: { any: ["orders:read", "orders:admin"] } }), (_req, res) => {
  res.json([]);
});

// A claim that must match the request
const ofTenant = bearer.express({
  check: ({ claims }, req: Request) => claims["tenant"] === req.params["tenant"],
});
app.get("/tenants/:tenant", ofTenant, (_req, res) => {
  res.json([]);
});

// With or without a token
app.get("/shop", bearer.express({ optional: true }), (req, res) => {
  res.json({ hello: bearer.authOf(req)?.claims.sub ?? "guest" });
});

// A denial in the handler
app.delete("/orders/:id", bearer.express(), (req, res) => {
  if (req.params["id"] === "1") {
    res.status(204).end();
  } else {
    const description = "the order belongs to another user";
    const { status, headers, body } = bearer.challenge(req, { status: 403, description, scope: "orders:admin" });
    res.status(status).set(headers).send(body);
  }
});

app.listen(3001);
