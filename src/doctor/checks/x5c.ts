import { type Note, note } from "../finding.ts";
import { type Key, decodeKey } from "../key.ts";
import type { CertificateFacts, Observations } from "../observations.ts";

/** Checks the certificates in `x5c`, and their digests. */
export async function checkX5c(key: Key, { at, certificates = {} }: Observations): Promise<Note[]> {
  const { jwk, name, thumbprint } = key;
  const { x5c } = jwk;
  if (x5c === undefined) return [];
  if (!Array.isArray(x5c) || x5c.length === 0 || !x5c.every(isBase64)) return [note("JWKS_X5C_FORMAT", name)];
  const texts = x5c as readonly string[];
  const known = texts.filter((text) => Object.hasOwn(certificates, text)).map((text) => certificates[text] ?? null);
  if (known.includes(null)) return [note("JWKS_X5C_FORMAT", `${name}: a certificate cannot be read`)];

  const notes = (known as CertificateFacts[]).flatMap(({ notBefore, notAfter }, index) => {
    const which = `certificate ${index + 1} of ${name}`;
    if (at > notAfter) return [note("JWKS_X5C_EXPIRED", `${which} ended on ${day(notAfter)}`)];
    return at < notBefore ? [note("JWKS_X5C_EXPIRED", `${which} begins on ${day(notBefore)}`)] : [];
  });
  const first = certificates[texts[0] as string];
  if (first === undefined || first === null) return notes;
  const certified = first.jwk === undefined ? undefined : await decodeKey(first.jwk, 0);
  if (thumbprint !== undefined && certified?.thumbprint !== thumbprint) notes.push(note("JWKS_X5C_MISMATCH", name));
  for (const [member, digest] of [
    ["x5t", first.sha1],
    ["x5t#S256", first.sha256],
  ] as const) {
    if (jwk[member] !== undefined && jwk[member] !== digest) {
      notes.push(note("JWKS_X5T_MISMATCH", `"${member}" of ${name}`));
    }
  }
  return notes;
}

const isBase64 = (text: unknown): boolean =>
  typeof text === "string" && text.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(text);

const day = (ms: number): string =>
  Number.isNaN(new Date(ms).getTime()) ? "?" : new Date(ms).toISOString().slice(0, 10);
