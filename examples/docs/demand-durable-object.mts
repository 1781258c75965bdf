import { env, waitUntil } from "cloudflare:workers";
import { Hono } from "hono";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { durableObjectStore } from "jwksd/store/durable-object";

export { KeysObject } from "jwksd/store/durable-object";

const issuer = "https://login.example.com";
const store = durableObjectStore(env.OBJECTS, { issuer });
const firstStart: string = env.FIRST_START; // "no" once the first key exists
const keys = await createKeyManager({
  issuer,
  store,
  wrappingKeys: env.WRAPPING_KEYS,
  onDemand: true,
  waitUntil,
  requireStore: firstStart !== "yes",
  onEvent: (event) => "error" in event && console.error(event.type, event.error.message),
});
const provider = await createProvider({ keys });

const app = new Hono();
app.get("/token", async (context) => {
  const claims = { sub: "alice", aud: "https://api.example.com", client_id: "app" };
  return context.text(await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 300 }));
});
app.all("*", (context) => provider.fetch(context.req.raw));

export default { fetch: app.fetch, scheduled: () => keys.runDueSteps() };
