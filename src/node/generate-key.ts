import { randomUUID } from "node:crypto";
import { link, open, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { exportJWK, exportPKCS8 } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";
import { ServiceError } from "../base/errors.ts";
import { fileErrorText } from "../base/file-errors.ts";
import { makeFolder } from "./make-folder.ts";

/** Generates a P-256 signing key. Returns the text of a file that contains it, as a private JWK or PKCS#8 PEM. */
export async function generateKey(format: "jwk" | "pem"): Promise<{ readonly kid: string; readonly text: string }> {
  const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true });
  const kid = await calculateJwkThumbprint(await exportJWK(publicKey));
  const jwk = { ...(await exportJWK(privateKey)), kid, alg: "ES256", use: "sig" };
  return { kid, text: format === "pem" ? await exportPKCS8(privateKey) : `${JSON.stringify(jwk, undefined, 2)}\n` };
}

/**
 * Writes a new file atomically, with mode 0600. Creates missing parent folders with mode 0700.
 *
 * @throws ServiceError `ERR_FILE_EXISTS`, `ERR_FILE_UNWRITABLE`
 */
export async function writeNewFile(path: string, text: string): Promise<void> {
  // The name contains a random ID instead of the process ID, because two containers on one volume can both be process
  // 1.
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    await makeFolder(dirname(path));
    const file = await open(temporary, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(temporary, path);
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && syscall !== "mkdir") {
      throw new ServiceError(
        "ERR_FILE_EXISTS",
        `${path} already exists and will not be overwritten; choose another name`,
      );
    }
    throw new ServiceError("ERR_FILE_UNWRITABLE", `cannot write ${path} (${fileErrorText(error)})`, { cause: error });
  } finally {
    // Errors are ignored here, because they must not hide an earlier error. At worst, the temporary file is left
    // behind.
    await rm(temporary, { force: true }).catch(() => {});
  }
}
