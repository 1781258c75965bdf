import { createProvider } from "jwksd";
import { textFile } from "jwksd/node";
import { createKeyManager, startWithSavedSet } from "jwksd/rotation";
import { postgresStore } from "jwksd/store/postgres";

const issuer = "https://login.example.com";
const { DATABASE_URL = "", JWKSD_WRAPPING_KEYS: wrappingKeys = "" } = process.env;
const store = postgresStore(DATABASE_URL, { issuer });

export const keys = await startWithSavedSet({
  issuer,
  wrappingKeys,
  savedSet: textFile("./saved-set.json"),
  start: (options) => createKeyManager({ issuer, store, wrappingKeys, ...options }),
});
export const provider = await createProvider({ keys }); // keys.manager is the manager, once its store is reached
