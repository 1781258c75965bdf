import { verify } from "node:crypto";
import { abortable } from "../../base/async.ts";
import { SignerError, keyError } from "../../base/errors.ts";
import { type EcPublicJwk, keyIdentity } from "../jwk/public-members.ts";
import { abortedBy, externalSigner, notP256 } from "../signer/external-signer.ts";
import type { ExternalSigner } from "../signer/signer.ts";
import type { TokenProcess } from "./child-client.ts";
import { p256Params } from "./constants.ts";
import { errorFor } from "./failure.ts";
import type { FoundKey } from "./messages.ts";
import type { Connection } from "./process-supervisor.ts";
import type { KeySelector } from "./uri.ts";

/** A key on a token. */
export interface TokenKey {
  readonly uri: string;
  readonly selector: KeySelector;
  readonly publicKey: EcPublicJwk;
  /** Process in which `number` refers to the key. */
  readonly process: TokenProcess;
  readonly number: number;
}

/**
 * Creates a signer, which keeps the connection open until the signer is closed. When the process is replaced, the
 * signer looks up its key again.
 */
export function pkcs11Signer(connection: Connection, key: TokenKey): ExternalSigner {
  const { uri, selector, publicKey } = key;
  const numbers = new WeakMap<TokenProcess, number | Promise<number>>([[key.process, key.number]]);

  async function find(process: TokenProcess): Promise<number> {
    const found = await process.call<"find">({ kind: "find", key: selector });
    if (keyIdentity(publicKeyOf(found, uri)) === keyIdentity(publicKey)) return found.key;
    throw new SignerError("ERR_SIGNER_KEY_STATE", "PKCS#11: the token now has a different key with the same name");
  }

  /**
   * Returns the key's number in a process. All calls share one search per process. If the search fails, the next call
   * repeats it.
   */
  function numberIn(process: TokenProcess): number | Promise<number> {
    const known = numbers.get(process);
    if (known !== undefined) return known;
    const search = find(process);
    numbers.set(process, search);
    search.then(
      (number) => numbers.set(process, number),
      () => numbers.delete(process),
    );
    return search;
  }

  connection.acquire();
  return externalSigner({
    uri,
    publicKey,
    dispose: () => connection.release(),

    async sign(digest, signal) {
      try {
        const process = connection.current ?? (await abortable(connection.process(), signal));
        const number = numberIn(process);
        const key = typeof number === "number" ? number : await abortable(number, signal);
        return checkSize(await process.call<"sign">({ kind: "sign", key, digest }, signal));
      } catch (error) {
        throw signal?.aborted === true ? abortedBy(signal, "PKCS#11") : errorFor(error);
      }
    },
  });
}

/**
 * Decodes a public key from CKA_EC_PARAMS and CKA_EC_POINT. The standard requires the point to be wrapped in an octet
 * string, but some modules return the bare point.
 *
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`
 * @see PKCS#11 3.0, section 2.3.3; RFC 5480 section 2.2
 */
function publicKeyOf({ isEc, params, point }: FoundKey, name: string): EcPublicJwk {
  if (!isEc) throw notP256(name);
  if (params === undefined || point === undefined) {
    throw keyError("ERR_KEY_FORMAT", name, "the token has no public key with the same id and label as the private key");
  }
  if (!isP256(params)) throw notP256(name, "on a different curve");
  const plain = point.length === 67 && point[0] === 0x04 && point[1] === 65 ? point.subarray(2) : point;
  if (plain.length !== 65 || plain[0] !== 0x04) {
    throw keyError("ERR_KEY_FORMAT", name, "CKA_EC_POINT is not an uncompressed point on P-256");
  }
  const text = (from: number): string => Buffer.from(plain.subarray(from, from + 32)).toString("base64url");
  return { kty: "EC", crv: "P-256", x: text(1), y: text(33) };
}

/** Reports whether the parameters are the curve's object identifier or its name as a printable string. */
function isP256(params: Uint8Array): boolean {
  if (Buffer.compare(params, p256Params) === 0) return true;
  const isName = params[0] === 0x13 && params[1] === params.length - 2;
  return isName && /^(secp256r1|prime256v1|P-256)$/.test(Buffer.from(params.subarray(2)).toString("latin1"));
}

/**
 * Checks that a key may sign, and then checks with a test signature that the public key belongs to it.
 *
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_KEY_PURPOSE`, `ERR_KEY_MISMATCH`
 */
export async function checkKey(process: TokenProcess, found: FoundKey, name: string): Promise<EcPublicJwk> {
  const publicKey = publicKeyOf(found, name);
  if (!found.maySign || found.alwaysAuthenticates) {
    const why = found.maySign ? "requires its PIN for every signature" : "is not for signing (CKA_SIGN)";
    throw keyError("ERR_KEY_PURPOSE", name, `this key ${why}, so it cannot sign for the provider`);
  }
  const probe = new TextEncoder().encode("jwksd probe");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", probe));
  const signature = checkSize(await process.call<"sign">({ kind: "sign", key: found.key, digest }));
  const key = { key: { ...publicKey }, format: "jwk", dsaEncoding: "ieee-p1363" } as const;
  if (!verify("sha256", probe, key, signature)) {
    throw keyError("ERR_KEY_MISMATCH", name, "its private and public keys do not match");
  }
  return publicKey;
}

/**
 * Checks that a signature is 64 bytes long. CKM_ECDSA returns r, then s, each as long as the curve's order.
 *
 * @see PKCS#11 3.0, section 2.3.1
 */
function checkSize(signature: Uint8Array): Uint8Array {
  if (signature.length === 64) return signature;
  throw new SignerError("ERR_SIGNER_BAD_SIGNATURE", `PKCS#11: the module returned ${signature.length} bytes, not 64`);
}
