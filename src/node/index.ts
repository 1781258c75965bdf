/**
 * Keys and saved sets in files, and a `fetch` that connects only to public addresses.
 *
 * @module jwksd/node
 */

export { isPublicAddress } from "./public-addresses.ts";
export { type GuardedFetchOptions, createGuardedFetch, guardedFetch } from "./guarded-fetch.ts";
export { type ReadKeysetResult, readEncryptionKeyset, readKeyset } from "./read-key-files.ts";
export { type TextFile, textFile } from "./text-file.ts";
