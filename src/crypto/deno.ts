// In Deno, Web Crypto signs and verifies on other threads, and node:crypto takes as long without them.
export { readSec1OrPkcs1, sha256 } from "./node.ts";
export { sign, verify, verifyLater } from "./web.ts";
