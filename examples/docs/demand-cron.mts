// cron.mts: node cron.mts, once an hour
import { createKeyManager } from "jwksd/rotation";
import { libsqlStore } from "jwksd/store/libsql";

const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS = "", FIRST_START } = process.env;
const issuer = "https://login.example.com";
const store = libsqlStore(DATABASE_URL, { issuer });
const requireStore = FIRST_START !== "yes";
const wrappingKeys = JWKSD_WRAPPING_KEYS;
const keys = await createKeyManager({ issuer, store, wrappingKeys, onDemand: true, requireStore });
await keys.runDueSteps();
await store.close();
