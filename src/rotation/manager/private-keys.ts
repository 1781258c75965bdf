import type { CryptoKey, JWK } from "jose";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { exportJWK } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";
import { importJWK } from "jose/key/import";
import { withDeadline } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { ConfigError, JwksdError, KeyMaterialError, SignerError } from "../../base/errors.ts";
import { checkDecrypts } from "../../keys/jwk/decryption-check.ts";
import { type PublicJwk, keyIdentity, publicMembers } from "../../keys/jwk/public-members.ts";
import { readKey } from "../../keys/jwk/read-key.ts";
import { boundSigner } from "../../keys/signer/bounded-signer.ts";
import { localSigner, signerFrom } from "../../keys/signer/local-signer.ts";
import type { ExternalSigner, Signer } from "../../keys/signer/signer.ts";
import {
  type EncryptionEntry,
  type Keysets,
  checkEncryption,
  checkSigning,
  encryptionAlgs,
} from "../../publish/keyset-check.ts";
import type { Wrapping } from "../custody/key-wrapping.ts";
import { mismatch, privateJwkOf } from "../custody/unwrap-key.ts";
import type { NewKey } from "../rules/commands.ts";
import { placeholderKey } from "../rules/decommission.ts";
import {
  type ExternalKey,
  type KeyRecord,
  type KeyUse,
  type LiveRecord,
  isDecommissioned,
  liveRecords,
  publishedKeys,
  uriOf,
} from "../rules/key-records.ts";

/** The open private keys, by kid. */
export interface OpenKeys {
  /**
   * Signers for active and announced keys. Retiring keys are not included, because they are not used for new signing
   * requests.
   */
  readonly signers: ReadonlyMap<string, Signer>;
  /** Private keys of live encryption keys. */
  readonly decryptionKeys: ReadonlyMap<string, CryptoKey>;
  /** Errors for the keys that could not be opened. */
  readonly unavailable: ReadonlyMap<string, unknown>;
}

/**
 * Checks that an external signer works: signs once and verifies the signature. Local keys are checked when they are
 * loaded.
 *
 * @throws SignerError for the same reasons as `boundSigner`
 */
export async function probeSigner(
  signer: Signer,
  publicJwk: PublicJwk,
  name: string,
  { clock, signal }: { readonly clock: Clock; readonly signal?: AbortSignal | undefined },
): Promise<void> {
  const sign = boundSigner(signer, await importJWK({ ...publicJwk }, "ES256"), name, {}, clock);
  await sign(new TextEncoder().encode("jwksd probe"), signal);
}

/** Returns an error of the same class, with the key's name in its message. */
function withKeyName(error: unknown, name: string): unknown {
  if (!(error instanceof JwksdError)) return error;
  const message = `${name}: ${error.message}`;
  const options = { cause: error };
  if (error instanceof SignerError) return new SignerError(error.code, message, options);
  if (error instanceof KeyMaterialError) return new KeyMaterialError(error.code, message, options);
  return error instanceof ConfigError ? new ConfigError(error.code, message, options) : error;
}

/** Maximum time for closing a signer, in milliseconds. Closing waits for signatures in progress, which may hang. */
const closeMs = 10_000;

/** Closes a signer that is no longer used. A failure is ignored. */
export async function closeSigner(signer: Pick<Signer, "close">, clock: Clock): Promise<void> {
  const expired = (): Error => new SignerError("ERR_SIGNER_TIMEOUT", `a signer did not close within ${closeMs} ms`);
  await withDeadline(async () => signer.close?.(), { clock, timeoutMs: closeMs, expired }).catch(() => {});
}

type OpenExternal = (uri: string) => Promise<ExternalSigner>;
type DestroyExternal = (uri: string) => Promise<unknown>;

/**
 * Destroys a key in its HSM or key service. First checks that the URI still identifies this key, because it may now
 * identify a different key that is in use.
 *
 * @throws KeyMaterialError `ERR_KEY_MISMATCH`
 */
export async function destroyExternal(
  key: ExternalKey,
  open: OpenExternal,
  destroy: DestroyExternal,
  clock: Clock = systemClock,
): Promise<void> {
  const signer = await open(key.uri);
  await closeSigner(signer, clock);
  const name = `kid ${JSON.stringify(key.kid)}`;
  // A tombstone has no public key.
  const thumbprint = await calculateJwkThumbprint({ ...publicMembers({ ...signer.publicKey }, name) });
  if (thumbprint !== key.thumbprint) throw mismatch(name);
  await destroy(key.uri);
}

interface OpenerOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Closes a signer in the background. */
  readonly close: (signer: Signer) => void;
}

/** Opens private keys and keeps them open for signing and decryption. */
export interface KeyOpener {
  /**
   * Opens the keys that are not open yet. If one cannot be opened, the others are still opened and published.
   * Otherwise, one broken key would keep keys in the set that another process has removed or revoked.
   */
  open(this: void, records: readonly KeyRecord[]): Promise<OpenKeys>;
  /** Returns the keys that are currently open. */
  opened(this: void, records: readonly KeyRecord[]): OpenKeys;
  /** Closes the signers of removed keys. A retiring key's signer stays open for signatures in progress. */
  closeUnused(this: void, records: readonly KeyRecord[]): void;
  /** Signs once with a key and verifies the signature against the public key in the key's record. */
  probe(record: LiveRecord): Promise<void>;
  close(): void;
}

export function createKeyOpener(
  wrapping: Wrapping,
  openExternal: OpenExternal | undefined,
  { clock, signal, close }: OpenerOptions,
): KeyOpener {
  const signers = new Map<string, Signer>();
  const decryptionKeys = new Map<string, CryptoKey>();

  async function openSigner(record: LiveRecord): Promise<Signer> {
    const { kid } = record;
    const opened = signers.get(kid);
    if (opened !== undefined) return opened;
    const name = `kid ${JSON.stringify(kid)}`;
    const uri = uriOf(record);
    const signer =
      uri === undefined
        ? await localSigner({ ...(await privateJwkOf(record, wrapping)) })
        : await openUri(uri).catch((error: unknown) => {
            throw withKeyName(error, name);
          });
    if (keyIdentity(publicMembers({ ...signer.publicKey }, name)) !== keyIdentity(record.publicJwk)) {
      close(signer);
      throw mismatch(name);
    }
    signers.set(kid, signer);
    return signer;
  }

  async function openUri(uri: string): Promise<ExternalSigner> {
    if (openExternal === undefined) {
      throw new SignerError(
        "ERR_SIGNER_UNAVAILABLE",
        `${uri}: this is an external key; set the openSigner option to use it`,
      );
    }
    return openExternal(uri);
  }

  async function openOne(record: LiveRecord): Promise<void> {
    const { kid, use, alg, state } = record;
    if (use === "sig") {
      if (maySign({ state })) await openSigner(record);
    } else if (!decryptionKeys.has(kid)) {
      decryptionKeys.set(kid, (await importJWK(await privateJwkOf(record, wrapping), alg)) as CryptoKey);
    }
  }

  function opened(records: readonly KeyRecord[]): OpenKeys {
    const live = liveRecords(records);
    return {
      signers: new Map([...signers].filter(([kid]) => live.some((key) => key.kid === kid && maySign(key)))),
      decryptionKeys: new Map([...decryptionKeys].filter(([kid]) => live.some((key) => key.kid === kid))),
      unavailable: new Map(),
    };
  }

  function closeAll(but: ReadonlySet<string>): void {
    for (const [kid, signer] of signers) {
      if (but.has(kid)) continue;
      signers.delete(kid);
      close(signer);
    }
  }

  return {
    async open(records) {
      const unavailable = new Map<string, unknown>();
      for (const record of liveRecords(records))
        await openOne(record).catch((error: unknown) => unavailable.set(record.kid, error));
      signal.throwIfAborted();
      return { ...opened(records), unavailable };
    },

    opened,

    closeUnused(records) {
      const kids = new Set(liveRecords(records).map(({ kid }) => kid));
      for (const kid of decryptionKeys.keys()) if (!kids.has(kid)) decryptionKeys.delete(kid);
      closeAll(kids);
    },

    async probe(record) {
      const name = `kid ${JSON.stringify(record.kid)}`;
      await probeSigner(await openSigner(record), record.publicJwk, name, { clock, signal });
    },

    close: (): void => closeAll(new Set()),
  };
}

/** Reports whether a key may be used for new signing requests, now or later. */
const maySign = ({ state }: Pick<LiveRecord, "state">): boolean => state === "active" || state === "announced";

/** Returns the keysets for a provider. */
export function keysetsOf(records: readonly KeyRecord[], { signers }: OpenKeys): Keysets {
  const published = publishedKeys(records, "sig");
  return {
    keyset: (published.length === 0 && isDecommissioned(records) ? [placeholderKey] : published).map(
      ({ kid, publicJwk }) => {
        const signer = signers.get(kid);
        return signer === undefined ? { kid, publicKey: publicJwk } : { kid, signer };
      },
    ),
    encryptionKeyset: publishedKeys(records, "enc").map(({ kid, alg, publicJwk }) => ({
      kid,
      publicKey: { ...publicJwk },
      alg: alg as EncryptionEntry["alg"],
    })),
  };
}

/** Algorithms for which jwksd generates keys. */
export const keyAlgs: readonly string[] = ["ES256", ...encryptionAlgs];

/** Generates a key in this process and wraps its private key. Its kid is its RFC 7638 thumbprint. */
export async function makeLocalKey(use: KeyUse, alg: string, wrapping: Wrapping): Promise<NewKey> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true, modulusLength: 2048 });
  const key = await wrapKey(use, alg, await exportJWK(privateKey), wrapping);
  // On a command line, a kid with a leading dash would be parsed as an option.
  return key.kid.startsWith("-") ? makeLocalKey(use, alg, wrapping) : key;
}

/**
 * Wraps an existing private JWK. The default kid is the key's RFC 7638 thumbprint.
 *
 * @throws KeyMaterialError for any key that a provider would reject, because a recorded kid can never be reused
 */
export async function wrapKey(
  use: KeyUse,
  alg: string,
  privateJwk: JWK,
  wrapping: Wrapping,
  givenKid?: string,
): Promise<NewKey> {
  const publicJwk = publicMembers(privateJwk, "the new key");
  const thumbprint = await calculateJwkThumbprint({ ...publicJwk });
  const kid = givenKid ?? thumbprint;
  await (use === "sig" ? checkSigningKey(kid, privateJwk) : checkEncryptionKey(kid, alg, privateJwk));
  return { kid, use, alg, thumbprint, publicJwk, privateHalf: { jwe: await wrapping.wrap(kid, privateJwk) } };
}

/** Describes a key in an HSM or key service. The default kid is the key's RFC 7638 thumbprint. */
export async function externalKey(signer: ExternalSigner, givenKid?: string): Promise<NewKey> {
  const { publicKey, uri } = signer;
  const publicJwk = publicMembers(publicKey, uri);
  const thumbprint = await calculateJwkThumbprint({ ...publicJwk });
  return { kid: givenKid ?? thumbprint, use: "sig", alg: "ES256", thumbprint, publicJwk, privateHalf: { uri } };
}

async function checkSigningKey(kid: string, privateJwk: JWK): Promise<void> {
  const name = `kid ${JSON.stringify(kid)}`;
  await checkSigning([{ kid, signer: await signerFrom(await readKey({ ...privateJwk }, name), name) }]);
}

async function checkEncryptionKey(kid: string, alg: string, privateJwk: JWK): Promise<void> {
  await checkEncryption([{ kid, publicKey: { ...privateJwk }, alg: alg as EncryptionEntry["alg"] }]);
  const name = `kid ${JSON.stringify(kid)}`;
  const { publicJwk, privateKey } = await readKey({ ...privateJwk }, name);
  if (privateKey === undefined) {
    throw new KeyMaterialError("ERR_PRIVATE_KEY_MISSING", `${name}: this is a public key; pass the private key`);
  }
  await checkDecrypts(publicJwk, privateJwk, alg, name);
}
