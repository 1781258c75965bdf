import { Hono } from "hono";
import { decode, verify } from "hono/jwt";
import { FetchError, createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://login.example.com";
const keys = createRemoteKeySet({ issuer });

const app = new Hono();
app.get("/orders", async (c) => {
  const token = c.req.header("Authorization")?.replace(/^Bearer /, "") ?? "";
  const key = await keys(decode(token).header);
  await verify(token, key, { alg: "ES256", iss: issuer, aud: "https://api.example.com", typ: "at+jwt" });
  return c.json([]);
});
app.onError((error, c) => c.body(null, error instanceof FetchError ? 503 : 401));
export default app;
