import { Elysia } from "elysia";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

const app = new Elysia().get("/orders", async ({ request }) => {
  const auth = await bearer.check(request, { scope: "orders:read" });
  return auth instanceof Response ? auth : { of: auth.claims.sub };
});
export default app;
