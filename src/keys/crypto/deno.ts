// In Deno, Web Crypto is as fast as node:crypto and runs on other threads.
export { readPrivatePem, sha256, toBase64url } from "./node.ts";
export { importPublicKey, sign, verify, verifyLater } from "./web.ts";
