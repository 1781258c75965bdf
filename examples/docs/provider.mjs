import { createServer } from "node:http";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { sqliteStore } from "jwksd/store/sqlite";

const store = sqliteStore("./keys.db");
const manager = await createKeyManager({
  issuer: "http://localhost:3000", // for real use: your own https URL
  store,
  wrappingKeys: process.env.JWKSD_WRAPPING_KEYS ?? "",
});
const provider = await createProvider({ keys: manager });
const server = createServer(provider.node).listen(3000);

const claims = { sub: "alice", aud: "https://api.example.com", client_id: "app", scope: "orders:read" };
console.log(await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 300 }));

const stop = () =>
  server.close(async () => {
    await manager.close(); // stops its timers and removes it from jwksd replicas
    await store.close();
  });
process.once("SIGTERM", stop).once("SIGINT", stop);
