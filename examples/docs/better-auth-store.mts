// better-auth-store.mts: node better-auth-store.mts
import { betterAuth } from "better-auth";
import { getAdapter } from "better-auth/db/adapter";
import { getMigrations } from "better-auth/db/migration";
import { jwt } from "better-auth/plugins";
import { createProvider } from "jwksd";
import { jwtOptions } from "jwksd/better-auth";
import { createKeyManager } from "jwksd/rotation";
import { betterAuthStore, jwksdStorePlugin } from "jwksd/store/better-auth";
import { createPool } from "mysql2/promise";

const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS = "", BETTER_AUTH_SECRET = "" } = process.env;
const baseURL = "http://localhost:3000";
const issuer = `${baseURL}/api/auth`;
const options = { baseURL, secret: BETTER_AUTH_SECRET, database: createPool(DATABASE_URL) };

const tables = { ...options, plugins: [jwksdStorePlugin] };
await (await getMigrations(tables)).runMigrations(); // create the key table before the keys are read
const store = betterAuthStore(await getAdapter(tables), { issuer });
export const manager = await createKeyManager({ issuer, store, wrappingKeys: JWKSD_WRAPPING_KEYS });
export const provider = await createProvider({ keys: manager }, { discovery: false });

export const auth = betterAuth({ ...options, plugins: [jwksdStorePlugin, jwt(jwtOptions(provider))] });
await (await getMigrations(auth.options)).runMigrations();
