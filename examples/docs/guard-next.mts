import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

// proxy.ts: before each route below /api
export async function proxy(request: Request): Promise<Response | undefined> {
  const auth = await bearer.check(request);
  return auth instanceof Response ? auth : undefined;
}
export const config = { matcher: "/api/:path*" };

// app/api/orders/route.ts
export async function GET(request: Request): Promise<Response> {
  const auth = await bearer.check(request, { scope: "orders:read" });
  return auth instanceof Response ? auth : Response.json({ of: auth.claims.sub });
}
