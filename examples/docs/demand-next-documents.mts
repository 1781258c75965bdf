// app/jwks/route.ts, and the same in app/.well-known/openid-configuration/route.ts
import { provider } from "@/lib/provider";

export const GET = async (request: Request) => (await provider()).fetch(request);
export const dynamic = "force-dynamic";
