import type { Bytes } from "../../base/bytes.ts";
import { type KeyMaterialError, SignerError, invalidOption, keyError } from "../../base/errors.ts";
import type { EcPublicJwk } from "../jwk/public-members.ts";
import type { ExternalSigner } from "./signer.ts";

/** A key in a backend. */
interface BackendKey {
  readonly uri: string;
  readonly publicKey: EcPublicJwk;
  /** Signs a 32-byte digest, which the caller can no longer change. */
  readonly sign: (digest: Bytes, signal: AbortSignal | undefined) => Promise<Uint8Array>;
  /** Releases the key. Called once, after the last signature. */
  readonly dispose?: () => Promise<void>;
}

/** Creates a signer. It checks each digest and, when closed, waits for the signatures in flight. */
export function externalSigner({ uri, publicKey, sign, dispose }: BackendKey): ExternalSigner {
  const underWay = new Set<Promise<unknown>>();
  let closing: Promise<void> | undefined;
  return Object.freeze({
    uri,
    publicKey: Object.freeze({ ...publicKey }),

    async sign({ digest, signal }) {
      if (closing !== undefined) {
        throw new SignerError("ERR_SIGNER_UNAVAILABLE", `${uri}: the signer was closed; use the new signer`);
      }
      if (!(digest instanceof Uint8Array) || digest.length !== 32) {
        throw invalidOption(`${uri}: a digest must be a 32-byte SHA-256 hash`);
      }
      // Copied, because the caller may change the digest in the meantime, and the digest may be part of a larger
      // buffer.
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

/** Returns the error for an aborted operation. If the deadline aborted it, returns the deadline's error. */
export function abortedBy(signal: AbortSignal, name: string): SignerError {
  const reason: unknown = signal.reason;
  if (reason instanceof SignerError) return reason;
  return new SignerError("ERR_SIGNER_ABORTED", `${name}: the caller aborted the operation`);
}

/** Returns the error for a key that is not a P-256 key. @param type the backend's name for the key's type */
export function notP256(name: string, type = "of another type"): KeyMaterialError {
  return keyError("ERR_KEY_NOT_P256", name, `a signing key must be an ECDSA key on P-256 (ES256); this key is ${type}`);
}

/** Returns the error for a P-256 key that cannot sign. @param purpose the backend's name for the key's purpose */
export function wrongPurpose(name: string, purpose = "it has another purpose"): KeyMaterialError {
  return keyError("ERR_KEY_PURPOSE", name, `this key is not for ES256 signatures (${purpose})`);
}
