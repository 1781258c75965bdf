// app/token/route.ts
import { provider } from "@/lib/provider";

export async function POST() {
  // The user and the client, after your own checks
  const claims = { sub: "alice", aud: "https://api.example.com", client_id: "app" };
  const token = await (await provider()).sign(claims, { typ: "at+jwt", lifetimeSeconds: 300 });
  const body = { access_token: token, token_type: "Bearer", expires_in: 300 };
  return Response.json(body, { headers: { "Cache-Control": "no-store" } });
}
