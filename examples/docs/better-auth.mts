// better-auth.mts: node better-auth.mts, then curl -i http://localhost:3000/api/auth/jwks
import { createServer } from "node:http";
import { DatabaseSync } from "node:sqlite";
import { oauthProvider } from "@better-auth/oauth-provider";
import { betterAuth } from "better-auth";
import { getMigrations } from "better-auth/db/migration";
import { toNodeHandler } from "better-auth/node";
import { jwt } from "better-auth/plugins";
import { createProvider } from "jwksd";
import { checkTokenLifetimes, jwtOptions } from "jwksd/better-auth";
import { createKeyManager } from "jwksd/rotation";
import { sqliteStore } from "jwksd/store/sqlite";

const { JWKSD_WRAPPING_KEYS = "", BETTER_AUTH_SECRET = "" } = process.env;
const baseURL = "http://localhost:3000";

export const manager = await createKeyManager({
  issuer: `${baseURL}/api/auth`, // the "issuer" of your discovery document
  store: sqliteStore("./keys.db"),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  initialPolicy: { rotateEveryDays: 90, maxTokenLifetimeSeconds: 36_000 }, // better-auth's ID tokens live for ten hours
});
const provider = await createProvider({ keys: manager }, { discovery: false });

export const auth = betterAuth({
  baseURL,
  secret: BETTER_AUTH_SECRET,
  database: new DatabaseSync("./auth.db"),
  emailAndPassword: { enabled: true },
  plugins: [
    jwt({ ...jwtOptions(provider), disableSettingJwtHeader: true }),
    oauthProvider({ loginPage: "/login", consentPage: "/consent" }),
  ],
});
checkTokenLifetimes(manager, auth.options);
await (await getMigrations(auth.options)).runMigrations();

const others = toNodeHandler(auth);
export const server = createServer((req, res) => provider.node(req, res, () => void others(req, res))).listen(3000);
