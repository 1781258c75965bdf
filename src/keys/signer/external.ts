import { type KeyMaterialError, SignerError, invalidOption, keyError } from "../../base/errors.ts";
import type { Bytes } from "../../base/bytes.ts";
import type { EcPublicJwk } from "../jwk/public.ts";
import type { ExternalSigner } from "./signer.ts";

/** A key of a backend. */
interface BackendKey {
  readonly uri: string;
  readonly publicKey: EcPublicJwk;
  /** Signs 32 bytes that the caller cannot change. */
  readonly sign: (digest: Bytes, signal: AbortSignal | undefined) => Promise<Uint8Array>;
  /** Called once, after the last signature. */
  readonly dispose?: () => Promise<void>;
}

/** Makes a signer that checks the digest, and that waits for signatures under way before it closes. */
export function externalSigner({ uri, publicKey, sign, dispose }: BackendKey): ExternalSigner {
  const underWay = new Set<Promise<unknown>>();
  let closing: Promise<void> | undefined;
  return Object.freeze({
    uri,
    publicKey: Object.freeze({ ...publicKey }),

    async sign({ digest, signal }) {
      if (closing !== undefined) {
        throw new SignerError("ERR_SIGNER_UNAVAILABLE", `${uri}: the signer was closed; sign with the new one`);
      }
      if (!(digest instanceof Uint8Array) || digest.length !== 32) {
        throw invalidOption(`${uri}: a digest is the 32 bytes of SHA-256`);
      }
      // The caller may change the digest meanwhile, and it may be part of a larger buffer.
      const signing = sign(Uint8Array.from(digest), signal);
      underWay.add(signing);
      try {
        return await signing;
      } finally {
        underWay.delete(signing);
      }
    },

    close() {
      closing ??= Promise.allSettled(underWay).then(() => dispose?.());
      return closing;
    },
  } satisfies ExternalSigner);
}

/** The error of an aborted operation: that of the deadline, if it aborted. */
export function abortedBy(signal: AbortSignal, name: string): SignerError {
  const reason: unknown = signal.reason;
  if (reason instanceof SignerError) return reason;
  return new SignerError("ERR_SIGNER_ABORTED", `${name}: the caller aborted the operation`);
}

/** The error for a key of another type. @param type in the words of its backend */
export function notP256(name: string, type = "of another type"): KeyMaterialError {
  return keyError("ERR_KEY_NOT_P256", name, `a signing key is an ECDSA key on P-256 (ES256), this one is ${type}`);
}

/** The error for a P-256 key that may not sign. @param purpose in the words of its backend */
export function wrongPurpose(name: string, purpose = "of another purpose"): KeyMaterialError {
  return keyError("ERR_KEY_PURPOSE", name, `this key is not for signatures with ES256 (${purpose})`);
}
