import { X509Certificate, constants, createPrivateKey } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { TlsOptions } from "node:tls";
import { reading } from "../../base/file-errors.ts";
import { ServiceError } from "../../base/errors.ts";

/** The names in a Kubernetes secret: certificate chain and key of the server, and the authority of its clients. */
const names = ["tls.crt", "tls.key", "ca.crt"] as const;

export const tlsFiles = (folder: string): string[] => names.map((name) => join(folder, name));

/**
 * Reads what a server of TLS 1.3 needs that takes no client without a certificate.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_LISTEN`
 * @see RFC 8446 section 4.3.2
 */
export async function readMutualTls(folder: string): Promise<TlsOptions> {
  const [cert = "", key = "", ca = ""] = await Promise.all(
    tlsFiles(folder).map((file) => reading(file, () => readFile(file, "utf8"))),
  );
  const [certFile = "", keyFile = "", caFile = ""] = tlsFiles(folder);
  const certificate = certificateIn(cert, certFile);
  // node:tls passes over what is no certificate, and takes the public authorities where nothing is left.
  certificateIn(ca, caFile);
  if (!certificate.checkPrivateKey(privateKeyIn(key, keyFile))) {
    throw new ServiceError("ERR_LISTEN", `${keyFile} is not the key of ${certFile}; put the files of one pair there`);
  }
  return {
    cert,
    key,
    ca,
    requestCert: true,
    rejectUnauthorized: true,
    minVersion: "TLSv1.3",
    // A resumed session shows no certificate (RFC 8446 section 2.2), so one that has expired would live on in its tickets.
    secureOptions: constants.SSL_OP_NO_TICKET,
    handshakeTimeout: 5_000,
  };
}

const certificateIn = (text: string, file: string): X509Certificate =>
  parsed(() => new X509Certificate(text), `${file} is no certificate in PEM ("BEGIN CERTIFICATE")`);

const privateKeyIn = (text: string, file: string) =>
  parsed(() => createPrivateKey(text), `${file} is no private key in PEM without a password`);

function parsed<T>(parse: () => T, fault: string): T {
  try {
    return parse();
  } catch {
    throw new ServiceError("ERR_LISTEN", fault);
  }
}
