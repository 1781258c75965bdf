// orders.mjs
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

/** @param {Request} request */
export async function orders(request) {
  const auth = await bearer.check(request, { scope: "orders:read" });
  return auth instanceof Response ? auth : Response.json({ of: auth.claims.sub });
}
