import assert from "node:assert/strict";
import { type KeyObject, constants, createHmac, createPrivateKey, sign } from "node:crypto";
import { inspect } from "node:util";
import { JwksdError } from "../../src/index.ts";

/** Signs a signing input. */
export type Signature = (input: Buffer) => Uint8Array;

const pss = { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST };
const pkcs1 = { padding: constants.RSA_PKCS1_PADDING };
const ecdsa = { dsaEncoding: "ieee-p1363" } as const;
const families = { RS: pkcs1, PS: pss, ES: ecdsa };

const keys = new Map<string, KeyObject>();

/** Returns the key of a JWK, which is parsed once. */
function keyOf(privateJwk: object): KeyObject {
  const name = JSON.stringify(privateJwk);
  const key = keys.get(name) ?? createPrivateKey({ key: { ...privateJwk }, format: "jwk" });
  keys.set(name, key);
  return key;
}

/** Returns a signing function for any algorithm of RFC 7518 and RFC 8037, without jose, so that no test depends on what jose would sign. */
export function signature(alg: string, privateJwk: object): Signature {
  const key = keyOf(privateJwk);
  if (alg === "EdDSA" || alg === "Ed25519") return (input) => sign(null, input, key);
  const options = families[alg.slice(0, 2) as keyof typeof families];
  return (input) => sign(`sha${alg.slice(2)}`, input, { key, ...options });
}

export const hmac =
  (alg: string, secret: string | Uint8Array): Signature =>
  (input) =>
    createHmac(`sha${alg.slice(2)}`, secret)
      .update(input)
      .digest();

export const noSignature: Signature = () => new Uint8Array();

export const encode = (value: unknown): string =>
  Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** Returns a compact JWS of any header and payload, as objects or text. @see RFC 7515 section 7.1 */
export function compact(header: unknown, payload: unknown, makeSignature: Signature): string {
  const input = `${encode(header)}.${encode(payload)}`;
  return `${input}.${Buffer.from(makeSignature(Buffer.from(input))).toString("base64url")}`;
}

type Json = Record<string, unknown>;

/** Returns a token's header and claims, unverified. */
export function read(token: string): { header: Json; claims: Json } {
  const [header, claims] = token
    .split(".", 2)
    .map((part) => JSON.parse(Buffer.from(part, "base64url").toString()) as Json);
  assert.ok(header !== undefined && claims !== undefined);
  return { header, claims };
}

/** Returns `"accepted"`, or the code of the error, which must be one of jwksd's. */
export async function verdict(attempt: Promise<unknown>): Promise<string> {
  const error = await attempt.then(
    () => undefined,
    (thrown: unknown) => ({ thrown }),
  );
  if (error === undefined) return "accepted";
  assert.ok(error.thrown instanceof JwksdError, `not a jwksd error: ${inspect(error.thrown)}`);
  return error.thrown.code;
}
