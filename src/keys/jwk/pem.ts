import type { CryptoKey, JWK } from "jose";
import { exportJWK } from "jose/key/export";
import { importPKCS8, importSPKI } from "jose/key/import";
import { readPrivatePem } from "#crypto";
import { keyError } from "../../base/errors.ts";

/** A PEM block. */
export interface PemBlock {
  readonly label: string;
  /** The block, split into lines of 64 characters, which every parser accepts. @see RFC 7468 section 2 */
  readonly text: string;
}

/**
 * Returns the blocks in PEM text. A block may be indented or on a single line, and its lines may end with a CR alone.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT`
 */
export function pemBlocks(text: string, name: string): PemBlock[] {
  const found = [...text.matchAll(/-----BEGIN ([A-Z0-9 ]+)-----([^]*?)-----END \1-----/g)];
  if (found.length < text.split("-----BEGIN ").length - 1)
    throw keyError("ERR_KEY_FORMAT", name, "this PEM is incomplete: a BEGIN line has no matching END line");
  return found.map(([, label = "", body = ""]) => {
    if (body.includes("\\n")) {
      throw keyError(
        "ERR_KEY_FORMAT",
        name,
        String.raw`this PEM has the two characters \ and n instead of line breaks, which is common in environment variables; replace them (in JavaScript: text.replaceAll("\\n", "\n"))`,
      );
    }
    const lines = body.replace(/\s+/g, "").replace(/.{1,64}/g, "$&\n");
    return { label, text: `-----BEGIN ${label}-----\n${lines}-----END ${label}-----\n` };
  });
}

/**
 * Returns the only key in PEM text, as a JWK with all its members. If the key is private, the text may also contain its
 * public key.
 *
 * @throws KeyMaterialError `ERR_KEY_FORMAT`, `ERR_KEY_MISMATCH`
 */
export async function readPem(text: string, name: string): Promise<JWK> {
  const blocks = pemBlocks(text, name);
  const privates = blocks.filter(({ label }) => /^(EC |RSA |ENCRYPTED )?PRIVATE KEY$/.test(label));
  const publics = blocks.filter(({ label }) => label === "PUBLIC KEY");
  const [block, another] = privates.length > 0 ? privates : publics;
  if (block === undefined) {
    const isCertificate = blocks.some(({ label }) => label === "CERTIFICATE");
    const problem = isCertificate
      ? "is a certificate; extract the public key with: openssl x509 -pubkey -noout -in FILE"
      : "contains no private or public key";
    throw keyError("ERR_KEY_FORMAT", name, `this PEM ${problem}`);
  }
  if (another !== undefined) {
    const kind = block.label === "PUBLIC KEY" ? "public" : "private";
    throw keyError("ERR_KEY_FORMAT", name, `this PEM contains several ${kind} keys; put each into its own file`);
  }
  if (block.label === "PUBLIC KEY") return readPublic(block, name);
  const jwk = await readPrivate(block, name);
  for (const other of publics) {
    if (isSameKey(await readPublic(other, name), jwk)) continue;
    throw keyError("ERR_KEY_MISMATCH", name, "its private and public keys do not match");
  }
  return jwk;
}

/**
 * Algorithms to try when reading a key, because jose requires an algorithm and PEM does not name one. Ed25519 is
 * included only so that the message can name the rejected type.
 */
const algs = ["ECDH-ES", "RSA-OAEP-256", "Ed25519"] as const;

function readPublic({ text }: PemBlock, name: string): Promise<JWK> {
  return firstOf(
    algs.map((alg) => asJwk(importSPKI(text, alg, { extractable: true }))),
    name,
  );
}

async function readPrivate({ label, text }: PemBlock, name: string): Promise<JWK> {
  if (text.includes("ENCRYPTED")) throw keyError("ERR_KEY_FORMAT", name, `this PEM is encrypted; ${toPkcs8}`);
  const isPkcs8 = label === "PRIVATE KEY";
  if (!isPkcs8 && readPrivatePem === undefined)
    throw keyError("ERR_KEY_FORMAT", name, `this runtime reads only PKCS#8; ${toPkcs8}`);
  const ways = isPkcs8 ? algs.map((alg) => asJwk(importPKCS8(text, alg, { extractable: true }))) : [];
  return firstOf([...ways, (async () => readPrivatePem?.(text) ?? Promise.reject(new Error("PKCS#8 only")))()], name);
}

const toPkcs8 = "convert the key to PKCS#8 with: openssl pkcs8 -topk8 -nocrypt -in FILE";

const asJwk = async (key: Promise<CryptoKey>): Promise<JWK> => exportJWK(await key);

/**
 * Returns the result of the first parser that can read the key. Discards the parsers' errors, because they might quote
 * the key.
 */
async function firstOf(ways: readonly Promise<JWK>[], name: string): Promise<JWK> {
  try {
    return await Promise.any(ways);
  } catch {
    throw keyError("ERR_KEY_FORMAT", name, "this is not a readable EC or RSA key");
  }
}

const isSameKey = (a: JWK, b: JWK): boolean =>
  (["kty", "crv", "x", "y", "n", "e"] as const).every((member) => a[member] === b[member]);
