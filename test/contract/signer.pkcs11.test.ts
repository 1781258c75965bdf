import { describe } from "node:test";
import { pkcs11Backend } from "../../src/keys/pkcs11/backend.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { type SignerUnderTest, checkSigner } from "../../src/testing/signer.ts";
import { soak } from "../support/soak.ts";
import { type Shim, createShim, createSoftHsm, skipWithoutPkcs11 } from "../support/softhsm.ts";
import { createTpmToken } from "./swtpm.ts";

const issuer = "https://op.example";
const counts = { signatures: soak(1_000) };
/** Without a search for leading zeros in `npm test`. */
const few = { signatures: soak(1_000, 99) };

describe("PKCS#11", { skip: skipWithoutPkcs11("cc") }, () => {
  checkSigner(
    "a key that was made in SoftHSM",
    () =>
      opened(async (t) => {
        const token = await createSoftHsm(t);
        const { modulePath, control } = createShim(token);
        const backend = pkcs11Backend({ modulePath, pin: { file: token.pinFile }, token: token.uri });
        return { signer: await backend.create({ issuer }), secrets: [token.pin], hold: holdSignatures(control) };
      }),
    counts,
  );

  checkSigner(
    "a key that was made elsewhere, on a token whose points are plain",
    () =>
      opened(async (t) => {
        const token = await createSoftHsm(t);
        token.pkcs11Tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "other", "--id", "0a0b");
        const { modulePath, control } = createShim(token);
        const plain = "C_GetAttributeValue plain";
        control(plain);
        const backend = pkcs11Backend({ modulePath, pin: { file: token.pinFile }, sessions: 4 });
        const signer = await backend.open(`${token.uri};object=other;id=%0A%0b`);
        return { signer, secrets: [token.pin], hold: holdSignatures(control, plain) };
      }),
    few,
  );
});

describe("PKCS#11 of a TPM", { skip: skipWithoutPkcs11("swtpm", "cc") }, () => {
  checkSigner(
    "a key that was made in a TPM",
    () =>
      opened(async (t) => {
        const token = await createTpmToken(t);
        const { modulePath, control } = createShim(token);
        const backend = pkcs11Backend({ modulePath, pin: { file: token.pinFile }, token: token.uri, sessions: 4 });
        return { signer: await backend.create({ issuer }), secrets: [token.pin], hold: holdSignatures(control) };
      }),
    few,
  );
});

/** Holds the module back in each C_Sign; `others` is what the shim does besides. */
const holdSignatures =
  (control: Shim["control"], ...others: readonly string[]) =>
  (): (() => void) => {
    control("C_Sign hang", ...others);
    return () => control(...others);
  };

type Scope = { after(fn: () => unknown): void };

/** What the scope gathers is undone when the suite closes the signer, or when there is none. */
async function opened(
  open: (t: Scope) => Promise<SignerUnderTest & { readonly signer: ExternalSigner }>,
): Promise<SignerUnderTest> {
  const ends: (() => unknown)[] = [];
  const end = async (): Promise<void> => {
    for (const each of ends) await each();
  };
  try {
    const { signer, ...rest } = await open({ after: (fn) => ends.unshift(fn) });
    return { signer, ...rest, close: async () => (await signer.close(), end()) };
  } catch (error) {
    await end();
    throw error;
  }
}
