import { withDeadline } from "../../base/async.ts";
import { SignerError, StoreError, invalidOption } from "../../base/errors.ts";
import type { Given } from "../../base/options.ts";
import type { ExternalSigner, Signer } from "../../keys/signer/signer.ts";
import { checkEncryption, checkSigning } from "../../publish/keyset-check.ts";
import type { DocumentChange } from "../custody/document.ts";
import type { KeyChange } from "../rules/advance.ts";
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
} from "../rules/key-records.ts";
import { recordBounds } from "../rules/waits.ts";
import type { Context } from "./context.ts";
import {
  type KeyOpener,
  closeSigner,
  createKeyOpener,
  destroyExternal,
  externalKey,
  keysetsOf,
  makeLocalKey,
} from "./private-keys.ts";
import type { Changed, Decide } from "./store-access.ts";
import type { Seen } from "./store-clock.ts";
import type { KeyManagerOptions } from "./types.ts";

/** Maximum time for generating, opening or destroying a key in an HSM or key service, in milliseconds. */
const externalMs = 60_000;

export type KeyringOptions = Pick<
  Given<KeyManagerOptions>,
  "createSigner" | "openSigner" | "destroySigner" | "requireStore"
>;

/** Thrown if a change would activate a key that cannot sign. The change is not made. */
export class CannotSign extends Error {
  readonly kid: string;

  constructor(kid: string, cause: unknown) {
    super(`kid ${JSON.stringify(kid)} cannot sign`, { cause });
    this.kid = kid;
  }
}

/** The result of destroying an external key. */
export interface Destroyed {
  readonly kid: string;
  readonly uri: string;
  readonly error?: unknown;
}

/**
 * A store's keys. Used wherever keys are changed or used for signing: in a manager, in a command, or for a single
 * token.
 */
export interface Keyring extends Pick<KeyOpener, "open" | "opened" | "closeUnused"> {
  /** Whether new signing keys are generated in an HSM or key service. */
  readonly isExternal: boolean;
  /** Returns what `decide` would change. @throws StoreError, and errors from `decide` */
  preview(decide: Decide): Promise<Changed>;
  /**
   * Changes the store with a compare-and-set. First checks that a new key can be opened, and that a key that becomes
   * active can sign.
   *
   * @param newKey key that was generated for this change; destroyed if it is certain that no record names it
   * @param found see `StoreAccess.change`
   * @throws CannotSign, and the same errors as `StoreAccess.change`
   */
  change(decide: Decide, newKey?: NewKey, found?: Seen): Promise<Changed>;
  /**
   * Generates a key that is not in the store yet. A signing key is generated in the HSM or key service, if one is
   * configured.
   */
  makeKey(use: KeyUse, alg: string): Promise<NewKey>;
  /**
   * Destroys the external keys that a change has removed or revoked, one at a time. If there is no `destroySigner`,
   * destroys nothing.
   */
  destroyEnded(change: KeyChange): AsyncGenerator<Destroyed>;
  close(): Promise<void>;
}

/**
 * Rejects a plain `Signer`, because it has no URI with which another process could open the key.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
function checkedSigner(option: string, signer: ExternalSigner): ExternalSigner {
  if (typeof signer.uri === "string" && typeof signer.close === "function") return signer;
  throw invalidOption(
    `"${option}" must return an ExternalSigner, which has uri and close in addition to publicKey and sign`,
  );
}

export function createKeyring(context: Context, options: KeyringOptions): Keyring {
  const { custody, access, clock, signal, report } = context;
  const { requireStore = false } = options;
  const { createSigner: create, openSigner: open, destroySigner: destroy } = options;
  const createSigner =
    create &&
    (async () =>
      checkedSigner("createSigner", await limited((signal) => create({ issuer: custody.owner.issuer, signal }))));
  const openSigner =
    open && (async (uri: string) => checkedSigner("openSigner", await limited((signal) => open(uri, { signal }))));
  const destroySigner = destroy && ((uri: string) => limited((signal) => destroy(uri, { signal })));
  const opener = createKeyOpener(custody, openSigner, { clock, signal, close });
  /** Signers that are being closed. Only `close` waits for them. */
  const closing = new Set<Promise<void>>();

  /** Makes a call with a time limit, because an HSM module, a driver or the network may hang. */
  function limited<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const expired = (): Error =>
      new SignerError("ERR_SIGNER_TIMEOUT", `the HSM or key service did not respond within ${externalMs / 1000} s`);
    return withDeadline(work, { clock, timeoutMs: externalMs, signal, expired });
  }

  function close(signer: Signer): void {
    const closed = closeSigner(signer, clock).finally(() => closing.delete(closed));
    closing.add(closed);
  }

  async function decided(seen: Seen, decide: Decide): Promise<DocumentChange> {
    const { records: stored, policy } = seen.document;
    if (requireStore && stored.length === 0) throw holdsNoKeys(custody.owner.issuer);
    const decision = await decide(seen);
    const records = recordBounds(decision.records ?? stored, decision.policy ?? policy);
    checkRecords(records, true);
    return { ...decision, records };
  }

  /**
   * Rejects a new key that cannot be opened, cannot sign, or would be rejected by a provider. This is checked before
   * the commit, because a recorded kid can never be reused.
   */
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

  async function checked(seen: Seen, decide: Decide): Promise<DocumentChange> {
    const decision = await decided(seen, decide);
    const { records: before } = seen.document;
    const { records = before } = decision;
    await checkNewKeys(addedRecords(before, records));
    await checkCanSign(newlyActive(before, records));
    return decision;
  }

  async function discardUnlessNamed(
    newKey: NewKey | undefined,
    records: readonly KeyRecord[],
    isCertain: boolean,
  ): Promise<void> {
    const uri = newKey && uriOf(newKey);
    if (uri === undefined || records.some((record) => uriOf(record) === uri)) return;
    const destroying = isCertain && destroySigner !== undefined && destroySigner(uri);
    const isDestroyed =
      destroying &&
      (await destroying.then(
        () => true,
        () => false,
      ));
    report({ type: "orphaned", uri, isDestroyed });
  }

  return {
    isExternal: createSigner !== undefined,
    preview: (decide) => access.preview((seen) => decided(seen, decide)),

    async change(decide, newKey, found) {
      let isDecided = false;
      try {
        const change = await access.change(async (seen) => {
          isDecided = true;
          return checked(seen, decide);
        }, found);
        await discardUnlessNamed(newKey, change.records, true);
        return change;
      } catch (error) {
        // The store may have written the change even though the call failed.
        await discardUnlessNamed(newKey, [], !(isDecided && error instanceof StoreError));
        throw error;
      }
    },

    open: opener.open,
    opened: opener.opened,
    closeUnused: opener.closeUnused,

    async close() {
      opener.close();
      await Promise.all(closing);
    },

    async makeKey(use, alg) {
      if (use !== "sig" || createSigner === undefined) return makeLocalKey(use, alg, custody);
      const signer = await createSigner();
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
    `the store has no keys for ${issuer}, and requireStore is true (the default with onDemand), so none were generated; ${remedy}`,
  );
}
