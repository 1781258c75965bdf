// Run: npm run build && node examples/managed-hsm.ts
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { type BackendOptions, signerBackend } from "jwksd/signer";
import { memoryStore } from "jwksd/store";
import { sqliteStore } from "jwksd/store/sqlite";

// The last two say where keys are, as --signer-type and --signers of jwksd serve do.
const { PORT = "3000", ISSUER = `http://localhost:${PORT}`, SIGNER_TYPE = "pkcs11", SIGNERS } = process.env;
// Signing keys need no wrapping key here; encryption keys do, and those that were made in the store before.
const { STORE, JWKSD_WRAPPING_KEYS = randomBytes(32).toString("base64url") } = process.env;

// See docs/signers.md; in your code an object like it.
const options = SIGNERS === undefined ? {} : (JSON.parse(await readFile(SIGNERS, "utf8")) as BackendOptions);
const backend = await signerBackend(SIGNER_TYPE, options);

const manager = await createKeyManager({
  issuer: ISSUER,
  // Keys outlive a store in memory, so keep yours in a file.
  store: STORE === undefined ? memoryStore() : await sqliteStore(STORE),
  wrappingKeys: JWKSD_WRAPPING_KEYS,
  createSigner: (request) => backend.create(request),
  openSigner: (uri, options) => backend.open(uri, options),
  // With `destroySigner: (uri, options) => backend.destroy(uri, options)` removed keys are destroyed there, for good.
  onEvent: (event) => console.log(event.type, "error" in event ? event.error?.message : ""),
});
const provider = await createProvider({ keys: manager });

const server = createServer(provider.node);
server.listen(Number(PORT), () => {
  console.log(`JWK Set at http://localhost:${(server.address() as AddressInfo).port}/jwks`);
});
process.once("SIGTERM", () => {
  server.close();
  // Ends the open signers: that of a PKCS#11 token keeps the process running.
  void manager.close();
});
