import { withDeadline } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import type { Given } from "../../base/options.ts";
import { SignerError, StoreError, invalidOption } from "../../base/errors.ts";
import { checkEncryption, checkSigning } from "../../publish/keyset.ts";
import type { Change } from "../rules/advance.ts";
import type { NewKey } from "../rules/commands.ts";
import {
  type KeyRecord,
  type KeyUse,
  type LiveRecord,
  addedRecords,
  checkRecords,
  endedExternalKeys,
  newlyActive,
  uriOf,
} from "../rules/records.ts";
import { recordBounds } from "../rules/waits.ts";
import type { ExternalSigner, Signer } from "../../keys/signer/signer.ts";
import { externalKey, makeLocalKey } from "./make-key.ts";
import { type OpenKeys, closeSigner, createKeyOpener, destroyExternal, keysetsOf } from "./private-keys.ts";
import type { Changed, Decision, Seen, StoreAccess } from "./store-access.ts";
import type { KeyManagerOptions } from "./types.ts";
import type { Custody } from "../custody/custody.ts";

/** How long an HSM or key service may take to make, open or destroy a key. */
const externalMs = 60_000;

export interface KeyringOptions extends Pick<
  Given<KeyManagerOptions>,
  "createSigner" | "openSigner" | "destroySigner" | "requireStore"
> {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Is told of an external key that was made, and that no record names; `isDestroyed`: it is gone again. */
  readonly onOrphan?: ((uri: string, isDestroyed: boolean) => void) | undefined;
}

/** A key was to become active, and cannot sign; nothing was changed. */
export class CannotSign extends Error {
  readonly kid: string;

  constructor(kid: string, cause: unknown) {
    super(`kid ${JSON.stringify(kid)} cannot sign`, { cause });
    this.kid = kid;
  }
}

/** Decides what a commit changes. Runs again where another commit came first. */
export type Decide = (seen: Seen) => Decision | Promise<Decision>;

/** An external key that was destroyed, or could not be. */
export interface Destroyed {
  readonly kid: string;
  readonly uri: string;
  readonly error?: unknown;
}

/** The keys of a store, for everybody who changes them or signs with them: manager, commands, single tokens. */
export interface Keyring {
  /** Where new signing keys are made; `undefined` for the store. */
  readonly createSigner: ((request: { readonly issuer: string }) => Promise<ExternalSigner>) | undefined;
  /** What `decide` would change. @throws StoreError, and what `decide` throws */
  preview(decide: Decide): Promise<Changed>;
  /**
   * Changes the store by compare-and-set. New keys have to open, and a key that becomes active has to sign first.
   *
   * @param made a key that was made for this change. If no record names it in the end, it is destroyed where that is certain
   * @throws see `StoreAccess.change`; CannotSign
   */
  change(decide: Decide, made?: NewKey): Promise<Changed>;
  open(records: readonly KeyRecord[]): Promise<OpenKeys>;
  /** What is open now. */
  opened(records: readonly KeyRecord[]): OpenKeys;
  closeUnused(records: readonly KeyRecord[]): void;
  close(): Promise<void>;
  /** Makes a key that is in no store yet: a signing key in the HSM or key service, if one is configured. */
  makeKey(use: KeyUse, alg: string): Promise<NewKey>;
  /** Destroys the external keys that a change has ended, one after the other. Without `destroySigner`, destroys nothing. */
  destroyEnded(change: Change): AsyncGenerator<Destroyed>;
}

/** A plain `Signer` has no URI, by which another process opens the key. @throws ConfigError `ERR_OPTION_INVALID` */
function checkedSigner(option: string, signer: ExternalSigner): ExternalSigner {
  if (typeof signer.uri === "string" && typeof signer.close === "function") return signer;
  throw invalidOption(`"${option}" must give an ExternalSigner: beside publicKey and sign, it has uri and close`);
}

export function createKeyring(custody: Custody, access: StoreAccess, options: KeyringOptions): Keyring {
  const { clock, signal, onOrphan, requireStore = false } = options;
  const { createSigner: create, openSigner: open, destroySigner: destroy } = options;
  const createSigner =
    create &&
    (async (request: { readonly issuer: string }) =>
      checkedSigner("createSigner", await limited((signal) => create({ ...request, signal }))));
  const openSigner =
    open && (async (uri: string) => checkedSigner("openSigner", await limited((signal) => open(uri, { signal }))));
  const destroySigner = destroy && ((uri: string) => limited((signal) => destroy(uri, { signal })));
  const opener = createKeyOpener(custody, openSigner, { clock, signal, close });
  /** Signers that are being closed: nobody waits for that until the end. */
  const closing = new Set<Promise<void>>();

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
    const { records: stored, policy } = seen.document;
    if (requireStore && stored.length === 0) throw holdsNoKeys(custody.owner.issuer);
    const decision = await decide(seen);
    const records = recordBounds(decision.records ?? stored, decision.policy ?? policy);
    checkRecords(records);
    return { ...decision, records };
  }

  /** A kid that was recorded is never free again. So a new key has to open and to sign, and a provider must accept it. */
  async function checkNewKeys(added: readonly LiveRecord[]): Promise<void> {
    if (added.length === 0) return;
    const trial = createKeyOpener(custody, openSigner, { clock, signal, close });
    try {
      const opened = await trial.open(added);
      for (const error of opened.unavailable.values()) throw error;
      const { keyset, encryptionKeyset } = keysetsOf(added, opened);
      if (keyset.length > 0) await checkSigning(keyset);
      await checkEncryption(encryptionKeyset);
      for (const record of added) if (uriOf(record) !== undefined) await trial.probe(record);
    } finally {
      trial.close();
    }
  }

  async function checkCanSign(key: LiveRecord | undefined): Promise<void> {
    if (key === undefined) return;
    await opener.probe(key).catch((error: unknown) => {
      throw new CannotSign(key.kid, error);
    });
  }

  async function checked(seen: Seen, decide: Decide): Promise<Decision> {
    const decision = await decided(seen, decide);
    const { records: before } = seen.document;
    const { records = before } = decision;
    await checkNewKeys(addedRecords(before, records));
    await checkCanSign(newlyActive(before, records));
    return decision;
  }

  async function discardUnlessNamed(
    made: NewKey | undefined,
    records: readonly KeyRecord[],
    isCertain: boolean,
  ): Promise<void> {
    const uri = made && uriOf(made);
    if (uri === undefined || records.some((record) => uriOf(record) === uri)) return;
    const destroying = isCertain && destroySigner !== undefined && destroySigner(uri);
    const isDestroyed =
      destroying &&
      (await destroying.then(
        () => true,
        () => false,
      ));
    onOrphan?.(uri, isDestroyed);
  }

  return {
    createSigner,
    preview: (decide) => access.preview((seen) => decided(seen, decide)),

    async change(decide, made) {
      let isDecided = false;
      try {
        const change = await access.change(async (seen) => {
          isDecided = true;
          return checked(seen, decide);
        });
        await discardUnlessNamed(made, change.records, true);
        return change;
      } catch (error) {
        // The store may have written a change although its call failed.
        await discardUnlessNamed(made, [], !(isDecided && error instanceof StoreError));
        throw error;
      }
    },

    open: (records) => opener.open(records),
    opened: (records) => opener.opened(records),
    closeUnused: (records) => opener.closeUnused(records),

    async close() {
      opener.close();
      await Promise.all(closing);
    },

    async makeKey(use, alg) {
      if (use !== "sig" || createSigner === undefined) return makeLocalKey(use, alg, custody);
      const signer = await createSigner({ issuer: custody.owner.issuer });
      return externalKey(signer).finally(() => close(signer));
    },

    async *destroyEnded({ records, events }) {
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
  const remedy =
    'check its path or URL; if the store is gone, see "A lost store" in docs/emergencies.md; only for the first start, set requireStore: false';
  return new StoreError(
    "ERR_STORE_EMPTY",
    `the store holds no keys of ${issuer}, and requireStore is true (the default with onDemand), so none were generated; ${remedy}`,
  );
}
