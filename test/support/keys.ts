import { createECDH, createHash, generateKeyPairSync } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type EcPrivateJwk = {
  readonly kty: "EC";
  readonly crv: EcCurve;
  readonly x: string;
  readonly y: string;
  readonly d: string;
};

export type PrivateJwk = Readonly<Record<string, string>> & { readonly kty: string };

/** A private JWK with its kid, as in key files. */
export type NamedKey = PrivateJwk & { readonly kid: string };

export type EcCurve = "P-256" | "P-384" | "P-521";

const curves = {
  "P-256": { ecdhName: "prime256v1", bytes: 32 },
  "P-384": { ecdhName: "secp384r1", bytes: 48 },
  "P-521": { ecdhName: "secp521r1", bytes: 66 },
} as const;

const ecKeys = new Map<string, EcPrivateJwk>();

/** Returns a private key whose scalar is a hash of the seed: the same seed gives the same key. */
export function ecKey(seed: string, crv: EcCurve = "P-256"): EcPrivateJwk {
  const name = `${crv} ${seed}`;
  const key = ecKeys.get(name) ?? newEcKey(seed, crv);
  ecKeys.set(name, key);
  return { ...key };
}

function newEcKey(seed: string, crv: EcCurve): EcPrivateJwk {
  const { ecdhName, bytes } = curves[crv];
  const scalar = createHash("shake256", { outputLength: bytes }).update(seed).digest();
  // Less than the order of each curve.
  scalar[0] = 1;
  const ecdh = createECDH(ecdhName);
  ecdh.setPrivateKey(scalar);
  const point = ecdh.getPublicKey();
  const text = (from: number, to: number): string => point.subarray(from, to).toString("base64url");
  return {
    kty: "EC",
    crv,
    x: text(1, bytes + 1),
    y: text(bytes + 1, 2 * bytes + 1),
    d: scalar.toString("base64url"),
  };
}

/** Returns a P-256 key with a kid. */
export function named(kid: string, key: EcPrivateJwk | PrivateJwk = ecKey(kid)): NamedKey {
  return { ...key, kid };
}

const rsaKeys = new Map<string, PrivateJwk>();

/** Returns a private RSA key, the same one for the same length and exponent, because generating one takes up to a second. */
export function rsaKey(modulusLength: number = 2048, publicExponent: number = 65_537): PrivateJwk {
  const name = `rsa-${modulusLength}-${publicExponent}`;
  const key = rsaKeys.get(name) ?? keptRsaKey(name, { modulusLength, publicExponent });
  rsaKeys.set(name, key);
  return key;
}

function keptRsaKey(name: string, options: { modulusLength: number; publicExponent: number }): PrivateJwk {
  const folder = join(tmpdir(), `jwksd-test-keys-${process.getuid?.() ?? "own"}`);
  const file = join(folder, `${name}.json`);
  try {
    return JSON.parse(readFileSync(file, "utf8")) as PrivateJwk;
  } catch {
    const key = generateKeyPairSync("rsa", options).privateKey.export({ format: "jwk" });
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    // Another process may generate one, too; the rename prevents reading a partial file.
    writeFileSync(`${file}.${process.pid}`, JSON.stringify(key), { mode: 0o600 });
    renameSync(`${file}.${process.pid}`, file);
    return key as PrivateJwk;
  }
}

/** The P-256 key of RFC 7515 appendix A.3. */
export const rfc7515Key: EcPrivateJwk = {
  kty: "EC",
  crv: "P-256",
  x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
  y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
  d: "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
};

export const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/** Returns the public half of a JWK, with its metadata. */
export function withoutPrivate(jwk: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(jwk).filter(([member]) => !privateMembers.includes(member)));
}

/** Returns every base64 sequence in an input that is long enough to be public or private key material. */
export function keyMaterial(input: unknown): string[] {
  if (typeof input === "string") return input.match(/[\w+/-]{20,}/g)?.filter((run) => !run.startsWith("-----")) ?? [];
  return typeof input === "object" && input !== null ? Object.values(input).flatMap(keyMaterial) : [];
}

/** Forms in which people and programs write PEM. */
export const spellingsOf = (pem: string): readonly (readonly [name: string, text: string])[] => [
  ["with CRLF", pem.replaceAll("\n", "\r\n")],
  ["with CR only", pem.replaceAll("\n", "\r")],
  ["in one line", pem.replaceAll("\n", " ").trim()],
  ["without any white space", pem.replaceAll("\n", "")],
  ["with its base64 in one line", pem.replace(/(?<=[^-])\n(?=[^-])/g, "")],
  ["indented", pem.replaceAll(/^/gm, "    ")],
  ["among other text", `Bag Attributes\n    friendlyName: x\n${pem}the end\n`],
];
