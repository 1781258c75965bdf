import { createHash, createPublicKey } from "node:crypto";
import { readFile } from "node:fs/promises";
import { type KeyMaterialError, keyError } from "../../base/errors.ts";
import { reading } from "../../base/file-errors.ts";
import { pemBlocks } from "../../keys/jwk/pem.ts";

/** A public key for tokens that Kubernetes itself has signed. It is used only for verification. */
export interface FormerKey {
  /** The key's kid in Kubernetes: the SHA-256 of `spki` in base64url. */
  readonly kid: string;
  /** SubjectPublicKeyInfo in DER. */
  readonly spki: Uint8Array;
}

/**
 * Reads all keys in PEM files.
 *
 * @throws IoError `ERR_FILE_UNREADABLE`
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export async function readFormerKeys(files: readonly string[]): Promise<FormerKey[]> {
  const keys = await Promise.all(
    files.map(async (file) => {
      const blocks = pemBlocks(await reading(file, () => readFile(file, "utf8")), file);
      // No block is ignored, because it could be a key whose tokens are still in use.
      if (blocks.length === 0 || blocks.some(({ label }) => label !== "PUBLIC KEY")) throw notPublicKeys(file);
      return blocks.map(({ text }) => formerKey(text, file));
    }),
  );
  return keys.flat();
}

function formerKey(pem: string, file: string): FormerKey {
  try {
    const spki = createPublicKey(pem).export({ type: "spki", format: "der" });
    return { kid: createHash("sha256").update(spki).digest("base64url"), spki };
  } catch {
    throw notPublicKeys(file);
  }
}

const notPublicKeys = (file: string): KeyMaterialError =>
  keyError(
    "ERR_KEY_FORMAT",
    file,
    'former keys must be public keys in PEM format ("BEGIN PUBLIC KEY"); remove everything else from the file',
  );
