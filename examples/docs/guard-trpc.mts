import { initTRPC } from "@trpc/server";
import { fetchRequestHandler } from "@trpc/server/adapters/fetch";
import { type VerifiedAccessToken, createBearerGuard } from "jwksd/bearer";

const bearer = createBearerGuard({ issuer: "https://login.example.com", audience: "https://api.example.com" });

const t = initTRPC.context<{ auth: VerifiedAccessToken }>().create();
const router = t.router({ orders: t.procedure.query(({ ctx }) => ({ of: ctx.auth.claims.sub })) });

export default {
  async fetch(req: Request): Promise<Response> {
    const auth = await bearer.check(req, { scope: "orders:read" });
    if (auth instanceof Response) return auth;
    return fetchRequestHandler({ endpoint: "/trpc", req, router, createContext: () => ({ auth }) });
  },
};
