// lib/provider.ts
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { libsqlStore } from "jwksd/store/libsql";

async function start() {
  const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS = "" } = process.env;
  const issuer = "https://login.example.com";
  const store = libsqlStore(DATABASE_URL, { issuer });
  const keys = await createKeyManager({
    issuer,
    store,
    wrappingKeys: JWKSD_WRAPPING_KEYS,
    onDemand: true,
    onEvent: (event) => "error" in event && console.error(event.type, event.error.message),
  });
  return createProvider({ keys, metadata: { token_endpoint: `${issuer}/token` } });
}

// All routes share it, and it survives when `next dev` reloads modules.
const kept = globalThis as { provider?: ReturnType<typeof start> };

/** Starts the provider with the first request, because `next build` loads the routes without a database. */
export const provider = () => (kept.provider ??= start());
