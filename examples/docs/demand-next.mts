// app/jwks/route.ts
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { libsqlStore } from "jwksd/store/libsql";

const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS = "" } = process.env;
const issuer = "https://login.example.com";
const store = await libsqlStore(DATABASE_URL, { issuer });
const keys = await createKeyManager({ issuer, store, wrappingKeys: JWKSD_WRAPPING_KEYS, onDemand: true });
const provider = await createProvider({ keys });

export const GET = (request: Request) => provider.fetch(request);
export const dynamic = "force-dynamic";
