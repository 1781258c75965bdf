// app/jwks/route.ts
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
  return createProvider({ keys });
}

let provider: ReturnType<typeof start> | undefined;

export async function GET(request: Request) {
  provider ??= start(); // not earlier: `next build` loads this file without a database
  provider.catch(() => (provider = undefined));
  return (await provider).fetch(request);
}
export const dynamic = "force-dynamic";
