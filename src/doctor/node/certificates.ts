import { X509Certificate, createHash } from "node:crypto";
import { isObject } from "../document.ts";
import type { CertificateFacts } from "../observations.ts";

const maxCertificates = 1000;
/** Real certificates are smaller. */
const maxText = 16_384;

/** Reads the certificates of all keys of a parsed JWK Set. */
export function readCertificates(set: unknown): Record<string, CertificateFacts | null> {
  const keys = isObject(set) && Array.isArray(set["keys"]) ? (set["keys"] as unknown[]) : [];
  // No prototype, because a text may be "__proto__".
  const certificates = Object.create(null) as Record<string, CertificateFacts | null>;
  let count = 0;
  for (const key of keys) {
    const chain = isObject(key) && Array.isArray(key["x5c"]) ? (key["x5c"] as unknown[]) : [];
    for (const text of chain) {
      if (typeof text !== "string" || count >= maxCertificates) continue;
      count += 1;
      certificates[text] = readCertificate(text);
    }
  }
  return certificates;
}

function readCertificate(text: string): CertificateFacts | null {
  if (text.length > maxText) return null;
  try {
    const certificate = new X509Certificate(Buffer.from(text, "base64"));
    const digest = (algorithm: string): string => createHash(algorithm).update(certificate.raw).digest("base64url");
    return {
      ...jwkOf(certificate),
      notBefore: certificate.validFromDate.getTime(),
      notAfter: certificate.validToDate.getTime(),
      sha1: digest("sha1"),
      sha256: digest("sha256"),
    };
  } catch {
    return null;
  }
}

/** The public key as a JWK, if its type has one. */
function jwkOf({ publicKey }: X509Certificate): Pick<CertificateFacts, "jwk"> {
  try {
    return { jwk: publicKey.export({ format: "jwk" }) };
  } catch {
    return {};
  }
}
