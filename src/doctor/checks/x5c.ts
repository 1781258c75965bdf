import { decode } from "../base64url.ts";
import { type Key, decodeKey } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";
import type { CertificateFacts, Observations } from "../observations.ts";
import { urlText } from "../value-text.ts";

/** Checks the certificates in `x5c`, their digests, and `x5u`. */
export async function checkX5c(key: Key, { at, certificates = {} }: Observations): Promise<Note[]> {
  const { jwk, name } = key;
  const { x5c, x5u } = jwk;
  const first = Array.isArray(x5c) && typeof x5c[0] === "string" ? certificates[x5c[0]] : undefined;
  const notes = checkDigests(key, first ?? undefined);
  if (typeof x5u === "string" && !/^https:/i.test(x5u)) notes.push(note("JWKS_X5U_HTTP", `${name}: ${urlText(x5u)}`));
  return x5c === undefined ? notes : [...notes, ...(await checkChain(key, x5c, at, certificates))];
}

async function checkChain(
  { jwk, name, thumbprint }: Key,
  x5c: unknown,
  at: number,
  certificates: NonNullable<Observations["certificates"]>,
): Promise<Note[]> {
  if (!Array.isArray(x5c) || x5c.length === 0 || !x5c.every(isBase64)) return [note("JWKS_X5C_FORMAT", name)];
  const known = x5c.filter((text) => Object.hasOwn(certificates, text)).map((text) => certificates[text] ?? null);
  const chain = known.filter((facts) => facts !== null);
  if (chain.length < known.length) return [note("JWKS_X5C_FORMAT", `${name}: a certificate cannot be read`)];
  const notes = chain.flatMap(({ notBefore, notAfter }, index) => {
    const which = `certificate ${index + 1} of ${name}`;
    if (at > notAfter) return [note("JWKS_X5C_EXPIRED", `${which} expired on ${day(notAfter)}`)];
    return at < notBefore ? [note("JWKS_X5C_EXPIRED", `${which} is valid from ${day(notBefore)}`)] : [];
  });
  const [first] = chain;
  if (first === undefined) return notes;
  const certified = first.jwk === undefined ? undefined : await decodeKey(first.jwk, 0);
  // The certificate authorities in a SPIFFE bundle do not sign each other.
  const isChain = jwk["use"] !== "x509-svid";
  if (isChain && thumbprint !== undefined && certified?.thumbprint !== thumbprint) {
    return [...notes, note("JWKS_X5C_MISMATCH", name)];
  }
  return isChain ? [...notes, ...checkOrder(chain, name)] : notes;
}

/** Checks that each certificate is signed by the next one. @see RFC 7517 section 4.7 */
function checkOrder(chain: readonly CertificateFacts[], name: string): Note[] {
  return chain.slice(0, -1).flatMap(({ signers }, index) => {
    const next = chain[index + 1]?.sha256 ?? "";
    if (signers === undefined || signers.includes(next)) return [];
    const signer = chain.findIndex(({ sha256 }, other) => other !== index && signers.includes(sha256));
    const by = signer === -1 ? "" : `, but by certificate ${signer + 1}`;
    return [note("JWKS_X5C_CHAIN", `certificate ${index + 1} of ${name} is not signed by the next one${by}`)];
  });
}

function checkDigests({ jwk, name }: Key, first: CertificateFacts | undefined): Note[] {
  return digests.flatMap(({ member, bytes, of }) => {
    const value = jwk[member];
    if (value === undefined) return [];
    const where = `"${member}" in ${name}`;
    const text = typeof value === "string" ? value : "";
    if (hexOf(text, bytes) !== undefined) return [note("JWKS_X5T_HEX", where)];
    const decoded = decode(text);
    if (decoded.bytes.length !== bytes || decoded.problem !== undefined)
      return [note("JWKS_X5T_MISMATCH", `${where} is not the base64url encoding of ${bytes} bytes`)];
    return first !== undefined && text !== of(first)
      ? [note("JWKS_X5T_MISMATCH", `${where} belongs to a different certificate`)]
      : [];
  });
}

const digests = [
  { member: "x5t", bytes: 20, of: ({ sha1 }: CertificateFacts) => sha1 },
  { member: "x5t#S256", bytes: 32, of: ({ sha256 }: CertificateFacts) => sha256 },
] as const;

/** Returns a digest's hex digits if the digest is encoded in hex, or in hex and then in base64url. */
function hexOf(text: string, bytes: number): string | undefined {
  const inner = String.fromCharCode(...decode(text.slice(0, 200)).bytes);
  return [text, inner].find((form) => form.length === bytes * 2 && /^[\da-f]+$/i.test(form));
}

const isBase64 = (text: unknown): text is string =>
  typeof text === "string" && text.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(text);

const day = (ms: number): string =>
  Number.isNaN(new Date(ms).getTime()) ? "?" : new Date(ms).toISOString().slice(0, 10);
