export { type GuardedFetchOptions, createGuardedFetch, guardedFetch, isPublicAddress } from "./guarded-fetch.ts";
export { type Loaded, readEncryptionKeyset, readKeyset } from "./key-files.ts";
