import { describe } from "node:test";
import type { ExternalSigner } from "../../src/signer/signer.ts";
import { pkcs11Backend } from "../../src/signer/pkcs11/index.ts";
import { createShim, createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";
import { createTpmToken } from "../support/swtpm.ts";
import { type SignerUnderTest, checkSigner } from "./signer.ts";

const issuer = "https://op.example";

describe("PKCS#11", { skip: skipWithoutPkcs11("cc") }, () => {
  checkSigner("a key that was made in SoftHSM", () =>
    opened(async (t) => {
      const { modulePath, uri, pin, pinFile } = await createSoftHsm(t);
      const backend = pkcs11Backend({ modulePath, pin: { file: pinFile }, token: uri });
      return { signer: await backend.create({ issuer }), secrets: [pin] };
    }),
  );

  checkSigner("a key that was made elsewhere, on a token whose points are plain", () =>
    opened(async (t) => {
      const token = await createSoftHsm(t);
      token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "other", "--id", "0a0b");
      const shim = createShim(token);
      shim.control("C_GetAttributeValue plain");
      const backend = pkcs11Backend({ modulePath: shim.modulePath, pin: { file: token.pinFile }, sessions: 4 });
      return { signer: await backend.open(`${token.uri};object=other;id=%0A%0b`), secrets: [token.pin] };
    }),
  );
});

describe("PKCS#11 of a TPM", { skip: skipWithoutPkcs11("swtpm") }, () => {
  checkSigner("a key that was made in a TPM", () =>
    opened(async (t) => {
      const { modulePath, uri, pin, pinFile } = await createTpmToken(t);
      const backend = pkcs11Backend({ modulePath, pin: { file: pinFile }, token: uri, sessions: 4 });
      return { signer: await backend.create({ issuer }), secrets: [pin] };
    }),
  );
});

type Scope = { after(fn: () => unknown): void };

/** What the scope gathers is undone when the suite closes the signer, or when there is none. */
async function opened(
  open: (t: Scope) => Promise<{ signer: ExternalSigner; secrets: readonly string[] }>,
): Promise<SignerUnderTest> {
  const ends: (() => unknown)[] = [];
  const end = async (): Promise<void> => {
    for (const each of ends) await each();
  };
  try {
    const { signer, secrets } = await open({ after: (fn) => ends.unshift(fn) });
    return { signer, secrets, close: async () => (await signer.close(), end()) };
  } catch (error) {
    await end();
    throw error;
  }
}
