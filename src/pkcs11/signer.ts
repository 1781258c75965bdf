import { verify } from "node:crypto";
import { abortable } from "../async.ts";
import { ConfigError, KeyMaterialError, SignerError } from "../errors.ts";
import { type EcPublicJwk, keyIdentity } from "../jwk/public.ts";
import type { ExternalSigner, SignInput } from "../signer/signer.ts";
import { signerErrorOf } from "./call-failure.ts";
import type { Connection } from "./connection.ts";
import type { FoundKey, KeySelector } from "./messages.ts";
import { publicKeyOf } from "./public-key.ts";
import type { TokenProcess } from "./token-process.ts";

/** A key of a token. Whatever process has the token open, the key is found again in it by what the URI says. */
export class Pkcs11Signer implements ExternalSigner {
  readonly publicKey: EcPublicJwk;
  readonly uri: string;
  readonly #connection: Connection;
  readonly #selector: KeySelector;
  #foundIn: TokenProcess | undefined;
  #key: number | undefined;
  #finding: Promise<number> | undefined;
  #underWay = 0;
  #onIdle: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  /**
   * Takes over one {@link Connection.acquire}, which `close` gives back.
   *
   * @param found the key, and the process that knows it by that number
   */
  constructor(
    connection: Connection,
    uri: string,
    selector: KeySelector,
    found: { readonly process: TokenProcess; readonly key: number; readonly publicKey: EcPublicJwk },
  ) {
    this.#connection = connection;
    this.uri = uri;
    this.#selector = selector;
    this.publicKey = found.publicKey;
    this.#foundIn = found.process;
    this.#key = found.key;
  }

  /**
   * @throws SignerError `ERR_SIGNER_THROTTLED`, `ERR_SIGNER_UNAVAILABLE`, `ERR_SIGNER_UNAUTHORIZED`, `ERR_SIGNER_KEY_STATE`,
   * `ERR_SIGNER_TIMEOUT`, `ERR_SIGNER_ABORTED`, `ERR_SIGNER_BAD_SIGNATURE`
   */
  async sign({ digest, signal }: SignInput): Promise<Uint8Array> {
    if (!(digest instanceof Uint8Array) || digest.length !== 32) {
      throw new ConfigError("ERR_OPTION_INVALID", "digest must be the 32 bytes of a SHA-256 digest");
    }
    if (this.#closing !== undefined) {
      throw new SignerError("ERR_SIGNER_UNAVAILABLE", "PKCS#11: the signer was closed; sign with the present one");
    }
    // The caller's buffer is the caller's again when this returns.
    const copy = Uint8Array.from(digest);
    this.#underWay += 1;
    try {
      const process = this.#connection.current ?? (await abortable(this.#connection.process(), signal));
      const key = this.#foundIn === process ? this.#key : undefined;
      return sized(
        await process.call<"sign">(
          { kind: "sign", key: key ?? (await abortable(this.#keyIn(process), signal)), digest: copy },
          signal,
        ),
      );
    } catch (error) {
      if (signal?.aborted === true) throw abortedBy(signal);
      throw signerErrorOf(error);
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === 0) this.#onIdle?.();
    }
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      if (this.#underWay > 0) await new Promise<void>((resolve) => (this.#onIdle = resolve));
      await this.#connection.release();
    })();
    return this.#closing;
  }

  /** All calls wait for one search. What was not found may be there the next time. */
  #keyIn(process: TokenProcess): Promise<number> {
    if (this.#foundIn !== process) {
      this.#foundIn = process;
      this.#key = undefined;
      this.#finding = undefined;
    }
    this.#finding ??= this.#find(process).then(
      (key) => {
        if (this.#foundIn === process) this.#key = key;
        return key;
      },
      (error: unknown) => {
        if (this.#foundIn === process) this.#finding = undefined;
        throw error;
      },
    );
    return this.#finding;
  }

  async #find(process: TokenProcess): Promise<number> {
    const found = await process.call<"find">({ kind: "find", key: this.#selector });
    const now = publicKeyOf(found, this.uri);
    if (keyIdentity(now) !== keyIdentity(this.publicKey)) {
      throw new SignerError("ERR_SIGNER_KEY_STATE", "PKCS#11: the token now holds another key under the same name");
    }
    return found.key;
  }
}

/**
 * Checks that a key may sign, and that what it signs is verified by the public key that stands beside it.
 *
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_FORMAT`, `ERR_KEY_PURPOSE`, `ERR_KEY_MISMATCH`
 */
export async function checkKey(process: TokenProcess, found: FoundKey, name: string): Promise<EcPublicJwk> {
  const publicKey = publicKeyOf(found, name);
  if (!found.maySign || found.alwaysAuthenticates) {
    const why = found.maySign ? "asks for its PIN at each signature" : "is not for signing (CKA_SIGN)";
    throw new KeyMaterialError("ERR_KEY_PURPOSE", `${name}: this key ${why}, so it cannot sign for the provider`);
  }
  const probe = new TextEncoder().encode("jwksd probe");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", probe));
  const signature = sized(await process.call<"sign">({ kind: "sign", key: found.key, digest }));
  const key = { key: { ...publicKey }, format: "jwk", dsaEncoding: "ieee-p1363" } as const;
  if (!verify("sha256", probe, key, signature)) {
    throw new KeyMaterialError("ERR_KEY_MISMATCH", `${name}: its private and its public part do not belong together`);
  }
  return publicKey;
}

/** CKM_ECDSA gives r, then s, each as long as the order of the curve. @see PKCS#11 3.0, section 2.3.1 */
function sized(signature: Uint8Array): Uint8Array {
  if (signature.length === 64) return signature;
  throw new SignerError("ERR_SIGNER_BAD_SIGNATURE", `PKCS#11: the module gave ${signature.length} bytes, not 64`);
}

/** The error that the guard aborts with says more than a general one. */
export function abortedBy(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  if (reason instanceof SignerError) return reason;
  return new SignerError("ERR_SIGNER_ABORTED", "PKCS#11: the caller aborted the operation");
}
