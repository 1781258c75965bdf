// A Workers KV binding named KEYS
import { env, waitUntil } from "cloudflare:workers";
import { createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({
  issuer: "https://login.example.com",
  audience: "https://api.example.com",
  state: {
    get: (issuer) => env.KEYS.get(issuer, "json"),
    set: (issuer, state) => waitUntil(env.KEYS.put(issuer, JSON.stringify(state))),
  },
});

export default {
  async fetch(request: Request): Promise<Response> {
    const auth = await bearer.check(request, { scope: "orders:read" });
    if (auth instanceof Response) return auth;
    return Response.json({ of: auth.claims.sub });
  },
};
