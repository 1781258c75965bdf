// provider.mjs, for Node 22.18 or later: node provider.mjs, then curl -i http://localhost:3000/jwks
import { createServer } from "node:http";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { sqliteStore } from "jwksd/store/sqlite";

const { WRAPPING_KEY = "" } = process.env;
const manager = await createKeyManager({
  issuer: "https://login.example.com",
  store: await sqliteStore("./keys.db"),
  wrappingKeys: [WRAPPING_KEY],
  policy: { rotateEveryDays: 90, maxTokenLifetimeSeconds: 3600 },
});
const provider = await createProvider({ keys: manager });

createServer(provider.node).listen(3000);

const token = await provider.sign({ sub: "alice", aud: "my-api" }, { typ: "at+jwt", lifetimeSeconds: 300 });
const { claims } = await provider.verify(token, { audience: "my-api", typ: "at+jwt" });
console.log(claims);
