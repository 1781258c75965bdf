// Signers over Web Crypto and over a service, as docs/signers.md and the docstring of `Signer` describe them.
import { type Signer, createProvider } from "jwksd";
import { createKeyManager } from "jwksd/rotation";
import { type ExternalSigner, type SignInput, type SignerBackend } from "jwksd/signer";
import { memoryStore } from "jwksd/store";
import { defineSignerTests } from "jwksd/testing/adapters";

const ecdsa = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const pair = await crypto.subtle.generateKey(ecdsa, false, ["sign", "verify"]);
/** `JsonWebKey`. */
const publicKey = await crypto.subtle.exportKey("jwk", pair.publicKey);

export const webCryptoSigner: Signer = {
  publicKey,
  async sign({ message, signal }: SignInput): Promise<Uint8Array> {
    signal?.throwIfAborted();
    return new Uint8Array(await crypto.subtle.sign(ecdsa, pair.privateKey, message));
  },
};

export const remoteSigner = (uri: string): ExternalSigner => ({
  uri,
  publicKey,
  async sign({ digest, signal }) {
    const response = await fetch(uri, { method: "POST", body: digest, signal: signal ?? null });
    return new Uint8Array(await response.arrayBuffer());
  },
  async close() {},
});

export const backend: SignerBackend = {
  async open(uri, { signal } = {}) {
    signal?.throwIfAborted();
    return remoteSigner(uri);
  },
  create: async ({ issuer }) => remoteSigner(issuer),
  destroy: async (uri) => ({ destroyedAt: uri.length }),
};

export const provider = await createProvider({
  issuer: "https://op.example",
  keyset: [
    { kid: "a", signer: webCryptoSigner },
    { kid: "b", publicKey },
  ],
  encryptionKeyset: [{ kid: "c", publicKey }],
});
export const manager = await createKeyManager({
  issuer: "https://op.example",
  store: memoryStore(),
  wrappingKeys: "",
  createSigner: (request) => backend.create(request),
  openSigner: (uri, options) => backend.open(uri, options),
  destroySigner: (uri, options) => backend.destroy(uri, options),
});
defineSignerTests("ours", async () => ({ signer: webCryptoSigner, secrets: [] }), { signatures: 10 });
