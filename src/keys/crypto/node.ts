import { Buffer } from "node:buffer";
import { KeyObject, constants, createPrivateKey, hash, sign as signBytes, verify as verifyBytes } from "node:crypto";
import type { CryptoKey } from "jose";
import type { Bytes } from "../../base/bytes.ts";
import { algorithmFor } from "./algorithms.ts";
import { derFromRaw, es256FromDer } from "./ecdsa-der.ts";
import { inTurn, wholeTurn } from "./event-loop-turns.ts";
import type { Primitives } from "./primitives.ts";
import * as web from "./web.ts";

// Primitives for Node and Bun. ECDSA signatures are passed to OpenSSL as DER, which takes half as long as r and s.

const { RSA_PKCS1_PSS_PADDING: padding } = constants;
const keyObjects = new WeakMap<CryptoKey, KeyObject>();

/**
 * Returns the key for OpenSSL, or `undefined` if the key is not extractable, in which case only Web Crypto can use it.
 */
function keyObject(key: CryptoKey): KeyObject | undefined {
  let object = keyObjects.get(key);
  if (object === undefined && key.extractable) keyObjects.set(key, (object = KeyObject.from(key)));
  return object;
}

export const sha256: Primitives["sha256"] = (bytes) => new Uint8Array(hash("sha256", bytes, "buffer"));

export const sign: Primitives["sign"] = (key, bytes) => {
  const object = keyObject(key);
  if (object === undefined) return web.sign(key, bytes);
  algorithmFor("ES256", key, "sign");
  return inTurn((): Bytes => es256FromDer(signBytes("sha256", bytes, object), "a local key"));
};

export const verify: Primitives["verify"] = (key, alg, bytes, signature) => verifyTaking(1, key, alg, bytes, signature);
export const verifyLater: Primitives["verifyLater"] = (key, alg, bytes, signature) =>
  verifyTaking(wholeTurn, key, alg, bytes, signature);

function verifyTaking(share: number, key: CryptoKey, alg: string, bytes: Bytes, signature: Bytes) {
  const object = keyObject(key);
  if (object === undefined) return web.verify(key, alg, bytes, signature);
  const { name, hash = null, signatureLength = signature.length, saltLength } = algorithmFor(alg, key, "verify");
  if (signature.length !== signatureLength) return false;
  const encoded = name === "ECDSA" ? derFromRaw(signature) : signature;
  const input = saltLength === undefined ? object : { key: object, padding, saltLength };
  return inTurn(() => verifyBytes(hash, bytes, input, encoded), share);
}

export const importPublicKey = web.importPublicKey;

export const toBase64url: Primitives["toBase64url"] = (input) => {
  const bytes =
    typeof input === "string" ? Buffer.from(input) : Buffer.from(input.buffer, input.byteOffset, input.length);
  return bytes.toString("base64url");
};

export const readPrivatePem: Primitives["readPrivatePem"] = (pem) => createPrivateKey(pem).export({ format: "jwk" });
