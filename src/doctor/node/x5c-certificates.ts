import { X509Certificate, createHash } from "node:crypto";
import { entriesIn, isObject } from "../lenient-json.ts";
import type { CertificateFacts } from "../observations.ts";

const maxCertificates = 1000;
/** Maximum number of certificates in a chain that are compared with each other. */
const maxChain = 10;
/** Maximum length of a certificate. Real certificates are shorter. */
const maxLength = 16_384;

/** Reads the certificates of all keys in a parsed JWK Set. */
export function readCertificates(set: unknown): Record<string, CertificateFacts | null> {
  // Has no prototype, because a string may be "__proto__". The cast is needed because Object.create returns any.
  const certificates = Object.create(null) as Record<string, CertificateFacts | null>;
  let count = 0;
  for (const key of entriesIn(set) ?? []) {
    const x5c: unknown = isObject(key) ? key["x5c"] : undefined;
    const texts: readonly unknown[] = Array.isArray(x5c) ? x5c : [];
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
  if (text.length > maxLength) return undefined;
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

/** Returns the public key as a JWK, if its type can be represented as one. */
function jwkOf({ publicKey }: X509Certificate): Pick<CertificateFacts, "jwk"> {
  try {
    return { jwk: publicKey.export({ format: "jwk" }) };
  } catch {
    return {};
  }
}
