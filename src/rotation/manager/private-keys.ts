import type { CryptoKey } from "jose";
import { importJWK } from "jose/key/import";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { withDeadline } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { ConfigError, type JwksdError, KeyMaterialError, SignerError } from "../../base/errors.ts";
import type { EncryptionEntry, Keysets } from "../../publish/keyset.ts";
import { type PublicJwk, publicMembers } from "../../keys/jwk/public.ts";
import { boundSigner } from "../../keys/signer/bounded.ts";
import { localSigner } from "../../keys/signer/local.ts";
import type { ExternalSigner, Signer } from "../../keys/signer/signer.ts";
import {
  type ExternalKey,
  type KeyRecord,
  type LiveRecord,
  liveRecords,
  publishedKeys,
  uriOf,
} from "../rules/records.ts";
import { mismatch, privateJwkOf } from "../custody/private-half.ts";
import type { Wrapping } from "../custody/wrapping.ts";

/** The private halves that are in use, by kid. */
export interface OpenKeys {
  /** Signers of active and announced keys. No request begins with a retiring key. */
  readonly signers: ReadonlyMap<string, Signer>;
  /** Private halves of live encryption keys. */
  readonly decryptionKeys: ReadonlyMap<string, CryptoKey>;
  /** Keys that could not be opened, and why. */
  readonly unavailable: ReadonlyMap<string, unknown>;
}

/** Makes one signature and verifies it. A local key was tried when it was loaded. @throws SignerError see `boundSigner` */
export async function probeSigner(
  signer: Signer,
  publicJwk: PublicJwk,
  name: string,
  { clock, signal }: { readonly clock: Clock; readonly signal?: AbortSignal | undefined },
): Promise<void> {
  const sign = boundSigner(signer, await importJWK({ ...publicJwk }, "ES256"), name, {}, clock);
  await sign(new TextEncoder().encode("jwksd probe"), signal);
}

/** The same error, with the kid of the key in its message. */
function ofKey(error: unknown, name: string): unknown {
  const SameError = [SignerError, KeyMaterialError, ConfigError].find((Class) => error instanceof Class);
  if (SameError === undefined) return error;
  const { code, message } = error as JwksdError;
  // The class belongs to the code, so the new error has the same class.
  return new SameError(code as never, `${name}: ${message}`, { cause: error });
}

/** How long a signer may take to close. It waits for the signatures under way, and one may hang for ever. */
const closeMs = 10_000;

/** Closes a signer that is not used any more, so a failure to close it does not matter. */
export async function closeSigner(signer: Pick<Signer, "close">, clock: Clock): Promise<void> {
  const expired = (): Error => new SignerError("ERR_SIGNER_TIMEOUT", `a signer has not closed within ${closeMs} ms`);
  await withDeadline(async () => signer.close?.(), { clock, timeoutMs: closeMs, expired }).catch(() => {});
}

type OpenExternal = (uri: string) => Promise<ExternalSigner>;
type DestroyExternal = (uri: string) => Promise<unknown>;

/**
 * Destroys a key in its HSM or key service, after comparing it: the URI may name another key by now, which somebody else needs.
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
  if (!(await isSameKey(signer, key))) throw mismatch(`kid ${JSON.stringify(key.kid)}`);
  await destroy(key.uri);
}

async function isSameKey({ publicKey }: Signer, { thumbprint }: Pick<KeyRecord, "thumbprint">): Promise<boolean> {
  return (await calculateJwkThumbprint({ ...publicMembers({ ...publicKey }, "the key of a signer") })) === thumbprint;
}

interface OpenerOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Closes a signer, and lets nobody wait for that. */
  readonly close: (signer: Signer) => void;
}

export interface KeyOpener {
  open(records: readonly KeyRecord[]): Promise<OpenKeys>;
  /** What is open now. */
  opened(records: readonly KeyRecord[]): OpenKeys;
  closeUnused(records: readonly KeyRecord[]): void;
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
            throw ofKey(error, name);
          });
    if (!(await isSameKey(signer, record))) {
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
        `${uri}: nothing was given to open external keys with (openSigner)`,
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
    /**
     * Opens the keys that are not open yet. A key that cannot be opened is published all the same: what others have removed or revoked leaves
     * the set at once, whatever becomes of its successor.
     */
    async open(records) {
      const unavailable = new Map<string, unknown>();
      for (const record of liveRecords(records))
        await openOne(record).catch((error: unknown) => unavailable.set(record.kid, error));
      signal.throwIfAborted();
      return { ...opened(records), unavailable };
    },

    opened,

    /** Closes the signers of keys that are gone. A signature that has begun with a key may end while that key retires. */
    closeUnused(records: readonly KeyRecord[]): void {
      const kids = new Set(liveRecords(records).map(({ kid }) => kid));
      for (const kid of decryptionKeys.keys()) if (!kids.has(kid)) decryptionKeys.delete(kid);
      closeAll(kids);
    },

    /** Makes one signature with a key, and verifies it against what is published. */
    async probe(record: LiveRecord): Promise<void> {
      const name = `kid ${JSON.stringify(record.kid)}`;
      await probeSigner(await openSigner(record), record.publicJwk, name, { clock, signal });
    },

    close: (): void => closeAll(new Set()),
  };
}

/** Whether requests may begin with a key, now or later. */
const maySign = ({ state }: Pick<LiveRecord, "state">): boolean => state === "active" || state === "announced";

/** What a provider publishes and signs with. */
export function keysetsOf(records: readonly KeyRecord[], { signers }: OpenKeys): Keysets {
  return {
    keyset: publishedKeys(records, "sig").map(({ kid, publicJwk }) => {
      const signer = signers.get(kid);
      return signer === undefined ? { kid, publicKey: publicJwk } : { kid, signer };
    }),
    encryptionKeyset: publishedKeys(records, "enc").map(({ kid, alg, publicJwk }) => ({
      kid,
      publicKey: { ...publicJwk },
      alg: alg as EncryptionEntry["alg"],
    })),
  };
}
