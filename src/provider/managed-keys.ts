import type { Keysets } from "../publish/keyset.ts";

/** The way in which a key ended: after its last token had expired, or immediately. */
export type KeyEnd = "removed" | "revoked";

/** Receives the keys after each change; a provider is one. */
export interface KeySubscriber {
  /** @param mode the mode, for providers without a predicate */
  update(keysets: Keysets, mode: { readonly isRotating: boolean }): Promise<void>;
}

/** Keys that change on their own, with the limits from their policy. A key manager provides them. */
export interface ManagedKeys {
  /** Issuer identifier of the provider. */
  readonly issuer: string;
  /** Current keysets. */
  readonly keysets: Keysets;
  /** Whether rotation mode is on. */
  readonly isRotating: boolean;
  /** Current maximum token lifetime, in seconds. */
  readonly maxTokenLifetimeSeconds: number;
  /**
   * Returns a function that checks whether this process may sign with a key, based on its last read of the store. It is
   * called before signing and again before the signature is returned; it throws SignerError `ERR_SIGNER_STALE`.
   */
  permit(kid: string): () => void;
  /** Keys that are read on demand; `undefined` if the keys change on their own. */
  readonly onDemand?: KeysOnDemand | undefined;
  /** Returns how a signing key ended; `undefined` if no key had this kid, or the key is still published. */
  endOf(kid: string): KeyEnd | undefined;
  /**
   * Passes the keysets to a subscriber now and after every change. Resolves after the first time. If a later update
   * fails or takes more than 10 s, it is retried; the other subscribers do not wait for it.
   */
  subscribe(subscriber: KeySubscriber): Promise<void>;
}

/** Keys that are only read when they are needed. */
export interface KeysOnDemand {
  /** Called before each use. Returns `undefined` if the keys may be used now. Rejects with SignerError `ERR_SIGNER_STALE`. */
  fresh(): Promise<void> | undefined;
  /** Reads the keys again because of an unknown kid, at most once a second. */
  ask(): Promise<void>;
}
