// Run: npm run build && node examples/managed-hsm.ts

import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { type SignerBackendOptions, signerBackend } from "jwksd/signer";
import { memoryStore } from "jwksd/store";
import { sqliteStore } from "jwksd/store/sqlite";

// The last two say where keys are, like jwksd serve's --signer-type and --signers.
const { PORT = "3000", ISSUER = `http://localhost:${PORT}`, SIGNER_TYPE = "pkcs11", SIGNERS } = process.env;
// Signing keys need no wrapping key here; encryption keys do, and so do keys that were generated in the store earlier.
const { STORE, JWKSD_WRAPPING_KEYS = randomBytes(32).toString("base64url") } = process.env;

// See docs/signers.md; in your code, use an object with the same members.
const options = SIGNERS === undefined ? {} : (JSON.parse(await readFile(SIGNERS, "utf8")) as SignerBackendOptions);
const backend = await signerBackend(SIGNER_TYPE, options);

const manager = await createKeyManager({
  issuer: ISSUER,
  // The keys outlive this in-memory store, so use a file or a database.
  store: STORE === undefined ? memoryStore() : sqliteStore(STORE),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  createSigner: (request) => backend.create(request),
  openSigner: (uri, options) => backend.open(uri, options),
  // With `destroySigner: (uri, options) => backend.destroy(uri, options)`, removed keys are permanently destroyed there.
  onEvent: (event) => console.log(event.type, "error" in event ? event.error?.message : ""),
});
const provider = await createProvider({ keys: manager });

const server = createServer(provider.node);
server.listen(Number(PORT), () => {
  console.log(`JWK Set at http://localhost:${(server.address() as AddressInfo).port}/jwks`);
});
process.once("SIGTERM", () => {
  server.close();
  // Closes the open signers: a PKCS#11 token's signer keeps the process running.
  void manager.close();
});
