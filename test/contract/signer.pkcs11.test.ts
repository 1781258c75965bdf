import { describe } from "node:test";
import { pkcs11Backend } from "../../src/signer/pkcs11/index.ts";
import { createShim, createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";
import { createTpmToken } from "../support/swtpm.ts";
import { checkSigner } from "./signer.ts";

const issuer = "https://op.example";

describe("PKCS#11", { skip: skipWithoutPkcs11("cc") }, () => {
  checkSigner("a key that was made in SoftHSM", async () => {
    const t = scope();
    const { modulePath, uri, pin, pinFile } = await createSoftHsm(t);
    const backend = pkcs11Backend({ modulePath, pin: { file: pinFile }, token: uri });
    const signer = await backend.create({ issuer });
    return { signer, secrets: [pin], close: async () => (await signer.close(), t.end()) };
  });

  checkSigner("a key that was made elsewhere, on a token whose points are plain", async () => {
    const t = scope();
    const token = await createSoftHsm(t);
    token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "other", "--id", "0a0b");
    const shim = createShim(token);
    shim.control("C_GetAttributeValue plain");
    const backend = pkcs11Backend({ modulePath: shim.modulePath, pin: { file: token.pinFile }, sessions: 4 });
    const signer = await backend.open(`${token.uri};object=other;id=%0A%0b`);
    return { signer, secrets: [token.pin], close: async () => (await signer.close(), t.end()) };
  });
});

describe("PKCS#11 of a TPM", { skip: skipWithoutPkcs11("swtpm") }, () => {
  checkSigner("a key that was made in a TPM", async () => {
    const t = scope();
    const { modulePath, uri, pin, pinFile } = await createTpmToken(t);
    const backend = pkcs11Backend({ modulePath, pin: { file: pinFile }, token: uri, sessions: 4 });
    const signer = await backend.create({ issuer });
    return { signer, secrets: [pin], close: async () => (await signer.close(), t.end()) };
  });
});

/** The contract suite has no test to hang clean-up on. */
function scope(): { after(fn: () => Promise<void>): void; end(): Promise<void> } {
  const ends: (() => Promise<void>)[] = [];
  return {
    after: (fn) => void ends.unshift(fn),
    async end() {
      for (const end of ends) await end();
    },
  };
}
