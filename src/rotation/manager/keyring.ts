import { withDeadline } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import type { Given } from "../../base/options.ts";
import { SignerError, StoreError, invalidOption } from "../../base/errors.ts";
import { checkEncryption, checkSigning } from "../../keys/keyset/keyset.ts";
import type { Change } from "../rules/advance.ts";
import type { NewKey } from "../rules/commands.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { addedRecords, checkAnnounced, checkRecords, endedExternalKeys, newlyActive, uriOf } from "../rules/records.ts";
import { checkNotRolledBack } from "../rules/rollback.ts";
import { noteWaits } from "../rules/waits.ts";
import type { ExternalSigner, Signer } from "../../keys/signer/signer.ts";
import type { KeyRecord, KeyUse } from "../store/store.ts";
import { type Changed, type Decision, type Seen, compareAndSet, look } from "./compare-and-set.ts";
import { externalKey, makeLocalKey } from "./make-key.ts";
import { closeSigner, createKeyOpener, destroyExternal, keysetsOf } from "./private-keys.ts";
import type { OnCall } from "./health.ts";
import type { KeyManagerOptions } from "./types.ts";
import type { Custody } from "../custody/custody.ts";

/** How long an HSM or key service may take to make, open or destroy a key. */
const externalMs = 60_000;

export interface KeyringOptions extends Pick<
  Given<KeyManagerOptions>,
  "createSigner" | "openSigner" | "destroySigner" | "signs" | "requireStore"
> {
  readonly policy: RotationPolicy;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onCall?: OnCall | undefined;
  /** Passes over keys whose wrapping key was lost, so that they can be revoked. Default: refuses them. */
  readonly passesOverLost?: boolean;
}

/** A key was to become active, and cannot sign; nothing was changed. */
export class CannotSign extends Error {
  readonly kid: string;

  constructor(kid: string, cause: unknown) {
    super(`kid ${JSON.stringify(kid)} cannot sign`, { cause });
    this.kid = kid;
  }
}

type Decide = (records: readonly KeyRecord[], now: number, seen: Seen) => Decision | Promise<Decision>;

/** An external key that was destroyed, or could not be. */
interface Destroyed {
  readonly kid: string;
  readonly uri: string;
  readonly error?: unknown;
}

export type Keyring = ReturnType<typeof createKeyring>;

/** A plain `Signer` has no URI, by which another process opens the key. @throws ConfigError `ERR_OPTION_INVALID` */
function checkedSigner(option: string, signer: ExternalSigner): ExternalSigner {
  if (typeof signer.uri === "string" && typeof signer.close === "function") return signer;
  throw invalidOption(`"${option}" must give an ExternalSigner: beside publicKey and sign, it has uri and close`);
}

/** The keys of a store, for everybody who changes them or signs with them: manager, commands, single tokens. */
export function createKeyring(custody: Custody, options: KeyringOptions) {
  const { policy, clock, signal, onCall, signs, requireStore = false, passesOverLost = false } = options;
  const { createSigner: create, openSigner: open, destroySigner: destroy } = options;
  const createSigner =
    create &&
    (async (request: { readonly issuer: string }) =>
      checkedSigner("createSigner", await limited((signal) => create({ ...request, signal }))));
  const openSigner =
    open && (async (uri: string) => checkedSigner("openSigner", await limited((signal) => open(uri, { signal }))));
  const destroySigner = destroy && ((uri: string) => limited((signal) => destroy(uri, { signal })));
  const opener = createKeyOpener(custody, openSigner, { signal, close, signs });
  /** Signers that are being closed: nobody waits for that until the end. */
  const closing = new Set<Promise<void>>();
  /** The records as they were last found in the store, or put there. */
  let last: readonly KeyRecord[] = [];

  /** Bounds the time of a call, because a module, a driver or a network may hang. */
  function limited<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const expired = (): Error =>
      new SignerError("ERR_SIGNER_TIMEOUT", `an HSM or key service has not answered within ${externalMs / 1000} s`);
    return withDeadline(work, { clock, timeoutMs: externalMs, signal, expired });
  }

  function close(signer: Signer): void {
    const closed = closeSigner(signer, clock).finally(() => closing.delete(closed));
    closing.add(closed);
  }

  async function decided(seen: Seen, decide: Decide): Promise<Decision> {
    const { records: stored, now } = seen;
    checkRecords(stored);
    checkNotRolledBack(stored, last);
    if (requireStore && stored.length === 0) throw holdsNoKeys(custody.owner.issuer);
    checkAnnounced(stored);
    if (!passesOverLost) await opener.checkWrapped(stored);
    last = stored;
    const decision = await decide(stored, now, seen);
    return { ...decision, records: noteWaits(decision.records, policy) };
  }

  /** A kid that was recorded is never free again. So a new key has to open and to sign, and a provider must accept it. */
  async function checkNewKeys(added: readonly KeyRecord[]): Promise<void> {
    if (added.length === 0) return;
    const trial = createKeyOpener(custody, openSigner, { signal, close });
    try {
      const { keyset, encryptionKeyset } = keysetsOf(added, await trial.open(added));
      if (keyset.length > 0) await checkSigning(keyset);
      await checkEncryption(encryptionKeyset);
      for (const record of added) if (uriOf(record) !== undefined) await trial.probe(record);
    } finally {
      trial.close();
    }
  }

  async function checkCanSign(key: KeyRecord | undefined): Promise<void> {
    if (key === undefined) return;
    await opener.probe(key).catch((error: unknown) => {
      throw new CannotSign(key.kid, error);
    });
  }

  return {
    policy,
    /** Where new signing keys are made; `undefined` for the store. */
    createSigner,

    /**
     * What `decide` would change, if the records may be used: they are no older copy, the active key was published for as long as was
     * agreed, and every wrapped key unwraps to the private half of what is published.
     *
     * @throws StoreError, KeyMaterialError, and what `decide` throws
     */
    async preview(decide: Decide): Promise<Changed> {
      const seen = await look(custody.store, { clock, signal, onCall });
      const { records: before, revision } = seen;
      const { records, events } = await decided(seen, decide);
      return { records, events, before, seen, revision };
    },

    /**
     * Changes the records by compare-and-set. `decide` runs again after a conflict. New keys have to open, and a key that becomes active
     * has to sign first.
     *
     * @throws see `preview` and `compareAndSet`; CannotSign
     */
    async change(decide: Decide): Promise<Changed> {
      const changed = await compareAndSet(
        custody.store,
        async (seen) => {
          const decision = await decided(seen, decide);
          await checkNewKeys(addedRecords(seen.records, decision.records));
          await checkCanSign(newlyActive(seen.records, decision.records));
          return decision;
        },
        { clock, signal, onCall },
      );
      last = changed.records;
      return changed;
    },

    open: (records: readonly KeyRecord[]) => opener.open(records),
    closeUnused: (records: readonly KeyRecord[], signsWith: readonly string[]) =>
      opener.closeUnused(records, signsWith),
    async close(): Promise<void> {
      opener.close();
      await Promise.all(closing);
    },

    /** Makes a key that is in no store yet: a signing key in the HSM or key service, if one is configured. */
    async makeKey(use: KeyUse, alg: string): Promise<NewKey> {
      if (use !== "sig" || createSigner === undefined) return makeLocalKey(use, alg, custody);
      const signer = await createSigner({ issuer: custody.owner.issuer });
      return externalKey(signer).finally(() => close(signer));
    },

    /** Destroys a key that was made, but that no record names. Resolves to whether the key is gone. */
    async destroyUnrecorded(uri: string): Promise<boolean> {
      if (destroySigner === undefined) return false;
      return destroySigner(uri).then(
        () => true,
        () => false,
      );
    },

    /** Destroys the external keys that a change has ended, one after the other. Without `destroySigner`, destroys nothing. */
    async *destroyEnded({ records, events }: Change): AsyncGenerator<Destroyed> {
      if (destroySigner === undefined || openSigner === undefined) return;
      for (const key of endedExternalKeys(records, events)) {
        const { kid, uri } = key;
        yield await destroyExternal(key, openSigner, destroySigner, clock).then(
          () => ({ kid, uri }),
          (error: unknown) => ({ kid, uri, error }),
        );
      }
    },
  };
}

function holdsNoKeys(issuer: string): StoreError {
  const way =
    'check its path or URL; if the store is gone, see "The store is lost" in docs/operations.md; leave requireStore out at the first start only';
  return new StoreError(
    "ERR_STORE_EMPTY",
    `the store holds no keys of ${issuer}, and requireStore is set, so none were made; ${way}`,
  );
}
