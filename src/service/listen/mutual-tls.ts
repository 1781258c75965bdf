import { X509Certificate, constants, createPrivateKey } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { TlsOptions } from "node:tls";
import { IoError } from "../../base/errors.ts";
import { reading } from "../../base/file-errors.ts";

/**
 * Names of the files with the server's certificate chain, its key, and the CA certificate for its clients, as in a
 * Kubernetes secret.
 */
const names = ["tls.crt", "tls.key", "ca.crt"] as const;

export const tlsFiles = (folder: string): string[] => names.map((name) => join(folder, name));

/**
 * Reads the files for a TLS 1.3 server that requires client certificates.
 *
 * @throws IoError `ERR_FILE_UNREADABLE`, `ERR_LISTEN`
 * @see RFC 8446 section 4.3.2
 */
export async function readMutualTls(folder: string): Promise<TlsOptions> {
  const [cert = "", key = "", ca = ""] = await Promise.all(
    tlsFiles(folder).map((file) => reading(file, () => readFile(file, "utf8"))),
  );
  const [certFile = "", keyFile = "", caFile = ""] = tlsFiles(folder);
  const certificate = certificateIn(cert, certFile);
  // node:tls ignores anything that is not a certificate. If nothing is left, it trusts the public CAs.
  certificateIn(ca, caFile);
  if (!certificate.checkPrivateKey(privateKeyIn(key, keyFile))) {
    throw new IoError("ERR_LISTEN", `${keyFile} does not match ${certFile}; use a matching certificate and key`);
  }
  return {
    cert,
    key,
    ca,
    requestCert: true,
    rejectUnauthorized: true,
    minVersion: "TLSv1.3",
    // A resumed session presents no certificate (RFC 8446 section 2.2), so with session tickets, an expired certificate
    // would remain usable.
    secureOptions: constants.SSL_OP_NO_TICKET,
    handshakeTimeout: 5_000,
  };
}

const certificateIn = (text: string, file: string): X509Certificate =>
  parsed(() => new X509Certificate(text), `${file} must be a certificate in PEM format ("BEGIN CERTIFICATE")`);

const privateKeyIn = (text: string, file: string) =>
  parsed(
    () => createPrivateKey(text),
    `${file} must be a private key in PEM format that is not protected by a password`,
  );

function parsed<T>(parse: () => T, message: string): T {
  try {
    return parse();
  } catch {
    throw new IoError("ERR_LISTEN", message);
  }
}
