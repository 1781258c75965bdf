import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { postgresStore } from "jwksd/store/postgres";

async function start() {
  const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS = "" } = process.env;
  const issuer = "https://login.example.com";
  const store = postgresStore(DATABASE_URL, { issuer });
  const manager = await createKeyManager({ issuer, store, wrappingKeys: JWKSD_WRAPPING_KEYS });
  return createProvider({ keys: manager });
}

const kept = globalThis as { provider?: ReturnType<typeof start> };
export const provider = await (kept.provider ??= start());
