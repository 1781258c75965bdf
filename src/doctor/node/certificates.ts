import { X509Certificate, createHash } from "node:crypto";
import { isObject } from "../document.ts";
import type { CertificateFacts } from "../observations.ts";

const maxCertificates = 1000;
/** Of a longer chain, the first are compared with each other. */
const maxChain = 10;
/** Real certificates are smaller. */
const maxText = 16_384;

/** Reads the certificates of all keys of a parsed JWK Set. */
export function readCertificates(set: unknown): Record<string, CertificateFacts | null> {
  const keys = isObject(set) && Array.isArray(set["keys"]) ? (set["keys"] as unknown[]) : [];
  // No prototype, because a text may be "__proto__".
  const certificates = Object.create(null) as Record<string, CertificateFacts | null>;
  let count = 0;
  for (const key of keys) {
    const texts = isObject(key) && Array.isArray(key["x5c"]) ? (key["x5c"] as unknown[]) : [];
    const chain = texts.filter((text) => typeof text === "string").slice(0, maxCertificates - count);
    count += chain.length;
    const read = chain.map((text) => ({ text, certificate: certificateOf(text) }));
    const others = read.flatMap(({ certificate }) => certificate ?? []).slice(0, maxChain);
    for (const { text, certificate } of read)
      certificates[text] = certificate === undefined ? null : factsOf(certificate, others);
  }
  return certificates;
}

function certificateOf(text: string): X509Certificate | undefined {
  if (text.length > maxText) return undefined;
  try {
    return new X509Certificate(Buffer.from(text, "base64"));
  } catch {
    return undefined;
  }
}

function factsOf(certificate: X509Certificate, chain: readonly X509Certificate[]): CertificateFacts {
  const signers = chain.length < 2 ? undefined : chain.filter((other) => isSignedBy(certificate, other));
  return {
    ...jwkOf(certificate),
    ...(signers && { signers: signers.map((signer) => digestOf(signer, "sha256")) }),
    notBefore: certificate.validFromDate.getTime(),
    notAfter: certificate.validToDate.getTime(),
    sha1: digestOf(certificate, "sha1"),
    sha256: digestOf(certificate, "sha256"),
  };
}

const digestOf = ({ raw }: X509Certificate, algorithm: string): string =>
  createHash(algorithm).update(raw).digest("base64url");

function isSignedBy(certificate: X509Certificate, other: X509Certificate): boolean {
  try {
    return certificate.issuer === other.subject && certificate.verify(other.publicKey);
  } catch {
    return false;
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
