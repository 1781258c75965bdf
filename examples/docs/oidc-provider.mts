// oidc-provider.mts: node oidc-provider.mts, then curl -i http://localhost:3000/jwks
import { createServer } from "node:http";
import { createRotatingOidcProvider } from "jwksd/oidc-provider";
import { createKeyManager } from "jwksd/rotation";
import { sqliteStore } from "jwksd/store/sqlite";
import { Provider } from "oidc-provider";
import { sqliteAdapter } from "./oidc-adapter.mts";

const { ISSUER = "http://localhost:3000", JWKSD_WRAPPING_KEYS = "" } = process.env;
const manager = await createKeyManager({
  issuer: ISSUER,
  store: sqliteStore("./keys.db"),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  initialPolicy: { rotateEveryDays: 90, maxTokenLifetimeSeconds: 3600 },
});
// Your configuration, without "jwks".
const configuration = {
  adapter: sqliteAdapter("./sessions.db"),
  clients: [{ client_id: "app", client_secret: "secret", redirect_uris: ["http://localhost:8080/callback"] }],
  ttl: { AccessToken: 3600, IdToken: 3600 },
};
const op = await createRotatingOidcProvider(manager, configuration, (configuration) => {
  const provider = new Provider(manager.issuer, configuration);
  provider.on("server_error", (_ctx, error) => console.error(error));
  return provider;
});

createServer(op.handler).listen(3000);
