import { env, waitUntil } from "cloudflare:workers";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { d1Store } from "jwksd/store/d1";

const issuer = "https://login.example.com";
const firstStart: string = env.FIRST_START; // "no" once the first key exists
const keys = await createKeyManager({
  issuer,
  store: d1Store(env.DB, { issuer }),
  wrappingKeys: env.WRAPPING_KEYS,
  onDemand: true,
  waitUntil,
  requireStore: firstStart !== "yes",
  onEvent: (event) => "error" in event && console.error(event.type, event.error.message),
});
const provider = await createProvider({ keys });

export default {
  fetch: (request: Request) => provider.fetch(request),
  scheduled: () => keys.runDueSteps(), // runs due steps even without traffic: crons = ["0 * * * *"]
};
