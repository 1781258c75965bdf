// Run: npm run build && node examples/managed.ts

import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { memoryStore } from "jwksd/store";
import { sqliteStore } from "jwksd/store/sqlite";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;
// In memory and under a new wrapping key on each start, only for this example; use a path and a secret.
const { STORE, JWKSD_WRAPPING_KEYS = randomBytes(32).toString("base64url") } = process.env;

// Generates the first key, then announces, activates, retires and removes keys on schedule.
const manager = await createKeyManager({
  issuer: ISSUER,
  store: STORE === undefined ? memoryStore() : sqliteStore(STORE),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  initialPolicy: { rotateEveryDays: 30, maxTokenLifetimeSeconds: 600 },
  onEvent: (event) => console.log(event.type),
});
const provider = await createProvider({ keys: manager });

const server = createServer(provider.node);
server.listen(Number(PORT), () => {
  console.log(`JWK Set at http://localhost:${(server.address() as AddressInfo).port}/jwks`);
});
