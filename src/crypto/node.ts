import { KeyObject, constants, hash, sign as signBytes, verify as verifyBytes } from "node:crypto";
import type { CryptoKey } from "jose";
import { algorithmFor } from "./algorithms.ts";
import { derFromRaw, es256FromDer } from "./der.ts";
import type { Primitives } from "./primitives.ts";
import * as web from "./web.ts";

// Node, and Bun. With r then s in place of DER, OpenSSL takes nearly twice as long for ECDSA.

const { RSA_PKCS1_PSS_PADDING: padding } = constants;
const keyObjects = new WeakMap<CryptoKey, KeyObject>();

/** The same key for OpenSSL. A key that is not extractable is for Web Crypto alone. */
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
  return es256FromDer(signBytes("sha256", bytes, object), "a local key");
};

export const verify: Primitives["verify"] = (key, alg, bytes, signature) => {
  const object = keyObject(key);
  if (object === undefined) return web.verify(key, alg, bytes, signature);
  const { hash = null, signatureLength, saltLength } = algorithmFor(alg, key, "verify");
  if (signatureLength !== undefined)
    return signature.length === signatureLength && verifyBytes(hash, bytes, object, derFromRaw(signature));
  return verifyBytes(hash, bytes, saltLength === undefined ? object : { key: object, padding, saltLength }, signature);
};
