import * as jose from "jose";
import { ConfigError, KeyMaterialError, SignerError } from "../errors.ts";
import type { EcPublicJwk } from "../jwk/public.ts";
import { type KeyInput, readKey } from "../jwk/read.ts";
import { word } from "./remote.ts";
import type { ExternalSigner } from "./signer.ts";

/** What an adapter adds to the frame that all signers of key services share. */
export interface ExternalKey {
  readonly uri: string;
  readonly publicKey: EcPublicJwk;
  /** Signs 32 bytes that nobody else changes. */
  readonly sign: (digest: Uint8Array<ArrayBuffer>, signal: AbortSignal | undefined) => Promise<Uint8Array>;
  /** Ends connections; nothing is under way any more. */
  readonly dispose: () => void;
}

/** Makes a signer that refuses what is no digest, and that lets signatures end before it closes. */
export function externalSigner({ uri, publicKey, sign, dispose }: ExternalKey): ExternalSigner {
  const underWay = new Set<Promise<unknown>>();
  let closing: Promise<void> | undefined;
  return Object.freeze({
    uri,
    publicKey: Object.freeze({ ...publicKey }),

    async sign({ digest, signal }) {
      if (closing !== undefined) {
        throw new SignerError("ERR_SIGNER_UNAVAILABLE", `${uri}: the signer was closed; sign with the present one`);
      }
      if (!(digest instanceof Uint8Array) || digest.length !== 32) {
        throw new ConfigError("ERR_OPTION_INVALID", `${uri}: a digest is the 32 bytes of SHA-256`);
      }
      // Copied, because it may be part of a larger buffer, and a retry must not see what the caller does with it.
      const signing = sign(Uint8Array.from(digest), signal);
      underWay.add(signing);
      try {
        return await signing;
      } finally {
        underWay.delete(signing);
      }
    },

    close() {
      closing ??= Promise.allSettled(underWay).then(dispose);
      return closing;
    },
  } satisfies ExternalSigner);
}

/**
 * The public half that a service gave, as a JWK: PEM, or a JWK.
 *
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_KEY_UNSUPPORTED`
 */
export async function p256PublicKey(input: KeyInput, name: string): Promise<EcPublicJwk> {
  const { publicJwk } = await readKey(input, name);
  if (publicJwk.kty !== "EC") throw notP256(name, publicJwk.kty);
  if (publicJwk.crv !== "P-256") throw notP256(name, publicJwk.crv);
  try {
    await jose.importJWK({ ...publicJwk }, "ES256");
  } catch {
    throw new KeyMaterialError("ERR_KEY_FORMAT", `${name}: the public key is no point on P-256`);
  }
  return publicJwk;
}

/** The error for a key of another type, of which the service told the name. */
export function notP256(name: string, type: unknown): KeyMaterialError {
  return new KeyMaterialError(
    "ERR_KEY_NOT_P256",
    `${name}: a signing key is an ECDSA key on P-256 (ES256), this one is ${word(type) ?? "of another type"}`,
  );
}

/** The error for a P-256 key that may not sign. */
export function wrongPurpose(name: string, purpose: unknown): KeyMaterialError {
  return new KeyMaterialError(
    "ERR_KEY_PURPOSE",
    `${name}: this key is not for signatures with ES256 (${word(purpose) ?? "of another purpose"})`,
  );
}

/** A PEM of the DER that services give as bytes. */
export function spkiPem(der: Uint8Array): string {
  return `-----BEGIN PUBLIC KEY-----\n${Buffer.from(der).toString("base64")}\n-----END PUBLIC KEY-----\n`;
}

/** @throws ConfigError `ERR_SIGNER_URI` */
export function badUri(uri: string, form: string): ConfigError {
  // A URI that is wrong may hold a password; only its scheme is repeated.
  const scheme = /^([\w+.-]{1,32}):/.exec(uri)?.[1] ?? "";
  return new ConfigError(
    "ERR_SIGNER_URI",
    `this ${scheme === "" ? "text" : `${scheme}: URI`} names no immutable key version; write it as ${form}`,
  );
}

/** The result of the last steps of making a key; where they fail, the key is taken back, so that attempts do not pile up. */
export async function orUndo<T>(lastSteps: Promise<T>, undo: () => Promise<unknown>): Promise<T> {
  try {
    return await lastSteps;
  } catch (error) {
    await undo().catch(() => {});
    throw error;
  }
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
export function checkKeyPrefix(prefix: string): void {
  if (!/^[A-Za-z0-9][A-Za-z0-9-]{0,31}$/.test(prefix)) {
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      "keyPrefix must be up to 32 letters, digits and hyphens, and begin with a letter or digit",
    );
  }
}

/** A name that no other key has, and that says for whom the key is. */
export function keyName(prefix: string, issuer: string): string {
  const host = new URL(issuer).hostname.replaceAll(/[^A-Za-z0-9]+/g, "-").slice(0, 64);
  return `${prefix}-${host}-${crypto.randomUUID().slice(-12)}`;
}
