// Run: npm run build && node examples/managed.ts
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { memoryStore } from "jwksd/store";
import { sqliteStore } from "jwksd/store/sqlite";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;
// In memory and under a new wrapping key on each start, for the example only; yours are a path and a secret.
const { STORE, JWKSD_WRAPPING_KEYS = randomBytes(32).toString("base64url") } = process.env;

// Makes the first key, and from then on announces, activates, retires and removes keys when it is time.
const manager = await createKeyManager({
  issuer: ISSUER,
  store: STORE === undefined ? memoryStore() : await sqliteStore(STORE),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  policy: { rotateEveryDays: 30, maxTokenLifetimeSeconds: 600 },
  onEvent: (event) => console.log(event.type),
});
const provider = await createProvider({ keys: manager });

const server = createServer(provider.node);
server.listen(Number(PORT), () => {
  console.log(`JWK Set at http://localhost:${(server.address() as AddressInfo).port}/jwks`);
});
