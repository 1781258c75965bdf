import type { CryptoKey } from "jose";
import { importJWK } from "jose/key/import";
import { withDeadline } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { ConfigError, type JwksdError, KeyMaterialError, SignerError } from "../../base/errors.ts";
import type { EncryptionEntry } from "../../keys/keyset/keyset.ts";
import { type PublicJwk, keyIdentity, publicMembers } from "../../keys/jwk/public.ts";
import { guardSigner } from "../../keys/signer/guard.ts";
import { localSigner } from "../../keys/signer/local.ts";
import type { ExternalSigner, Signer } from "../../keys/signer/signer.ts";
import type { KeyRecord } from "../store/store.ts";
import type { Keysets } from "../../library/provider/managed-keys.ts";
import { type ExternalKey, liveRecords, publishedKeys, uriOf } from "../rules/records.ts";
import { mismatch, privateJwkOf } from "../custody/private-half.ts";
import type { Wrapping } from "../custody/wrapping.ts";

/** The private halves that are in use, by kid. */
export interface OpenKeys {
  /** Signers of active and announced keys. No request begins with a retiring key. */
  readonly signers: ReadonlyMap<string, Signer>;
  /** Private halves of live encryption keys. */
  readonly decryptionKeys: ReadonlyMap<string, CryptoKey>;
  /** Announced external keys that could not be opened, and why. */
  readonly unopened: ReadonlyMap<string, unknown>;
}

/** Makes one signature and verifies it. A local key was tried when it was loaded. @throws SignerError see `guardSigner` */
export async function probeSigner(
  signer: Signer,
  publicJwk: PublicJwk,
  name: string,
  signal?: AbortSignal,
): Promise<void> {
  const sign = guardSigner(signer, await importJWK({ ...publicJwk }, "ES256"), name);
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
  { kid, uri, publicJwk }: ExternalKey,
  open: OpenExternal,
  destroy: DestroyExternal,
  clock: Clock = systemClock,
): Promise<void> {
  const signer = await open(uri);
  await closeSigner(signer, clock);
  if (!isSameKey(signer, { publicJwk })) throw mismatch(`kid ${JSON.stringify(kid)}`);
  await destroy(uri);
}

function isSameKey({ publicKey }: Signer, { publicJwk }: Pick<KeyRecord, "publicJwk">): boolean {
  return keyIdentity(publicMembers({ ...publicKey }, "the key of a signer")) === keyIdentity(publicJwk);
}

interface OpenerOptions {
  readonly signal: AbortSignal;
  /** Closes a signer, and lets nobody wait for that. */
  readonly close: (signer: Signer) => void;
  readonly signs?: boolean | undefined;
}

export function createKeyOpener(
  wrapping: Wrapping,
  openExternal: OpenExternal | undefined,
  { signal, close, signs = true }: OpenerOptions,
) {
  const signers = new Map<string, Signer>();
  const decryptionKeys = new Map<string, CryptoKey>();
  /** By kid: both halves of a record that were found to belong together. */
  const seen = new Map<string, string>();

  async function openSigner(record: KeyRecord): Promise<Signer> {
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
    if (!isSameKey(signer, record)) {
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

  async function openOne(record: KeyRecord, unopened: Map<string, unknown>): Promise<void> {
    const { kid, use, alg, state } = record;
    if (use === "enc") {
      if (decryptionKeys.has(kid)) return;
      const key = await importJWK(await privateJwkOf(record, wrapping), alg);
      decryptionKeys.set(kid, key as CryptoKey);
    } else if (state === "active" && signs) {
      await openSigner(record);
    } else if (state === "active" || state === "announced") {
      // An announced external key may not be ready yet. It is tried again before it becomes active.
      await openSigner(record).catch((error: unknown) => {
        if (uriOf(record) === undefined) throw error;
        unopened.set(kid, error);
      });
    }
  }

  function closeAll(but: ReadonlySet<string>): void {
    for (const [kid, signer] of signers) {
      if (but.has(kid)) continue;
      signers.delete(kid);
      close(signer);
    }
  }

  /** Whether all wrapped keys unwrap, and belong to what is published. @throws see {@link privateJwkOf} */
  async function checkWrapped(records: readonly KeyRecord[]): Promise<void> {
    for (const record of liveRecords(records)) {
      if (uriOf(record) !== undefined) continue;
      const halves = JSON.stringify([record.publicJwk, record.privateHalf]);
      if (seen.get(record.kid) === halves) continue;
      await privateJwkOf(record, wrapping);
      seen.set(record.kid, halves);
    }
  }

  return {
    checkWrapped,

    /**
     * Opens the keys that are not open yet. All wrapped keys must unwrap, and the active key must open. An announced external key that
     * cannot be opened is published all the same.
     */
    async open(records: readonly KeyRecord[]): Promise<OpenKeys> {
      await checkWrapped(records);
      const live = liveRecords(records);
      const unopened = new Map<string, unknown>();
      for (const record of live) await openOne(record, unopened);
      return {
        signers: new Map([...signers].filter(([kid]) => live.some((key) => key.kid === kid && maySign(key)))),
        decryptionKeys: new Map([...decryptionKeys].filter(([kid]) => live.some((key) => key.kid === kid))),
        unopened,
      };
    },

    /** Closes the open signers of all other keys. @param signsWith kids of keys that were replaced and still sign, too */
    closeUnused(records: readonly KeyRecord[], signsWith: readonly string[]): void {
      const live = liveRecords(records);
      const kids = new Set(live.map(({ kid }) => kid));
      for (const kid of decryptionKeys.keys()) if (!kids.has(kid)) decryptionKeys.delete(kid);
      const signing = new Set(live.filter((key) => maySign(key) || signsWith.includes(key.kid)).map(({ kid }) => kid));
      closeAll(signing);
    },

    /** Makes one signature with a key, and verifies it against what is published. */
    async probe(record: KeyRecord): Promise<void> {
      await probeSigner(await openSigner(record), record.publicJwk, `kid ${JSON.stringify(record.kid)}`, signal);
    },

    close: (): void => closeAll(new Set()),
  };
}

/** Whether requests may begin with a key, now or later. */
const maySign = ({ state }: KeyRecord): boolean => state === "active" || state === "announced";

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
