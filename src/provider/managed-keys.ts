import type { Keysets } from "../publish/keyset-check.ts";

/**
 * Final state of a key: `removed`, which happens after its last token has expired, or `revoked`, which happens
 * immediately.
 */
export type KeyEnd = "removed" | "revoked";

/** Receives the keys after every change. A provider is a subscriber. */
export interface KeySubscriber {
  /** @param mode whether rotation mode is on, for providers without a predicate */
  update(keysets: Keysets, mode: { readonly isRotating: boolean }): Promise<void>;
}

/** Keys that change on their own, with the limits that their policy sets. A key manager is one implementation. */
export interface KeysetSource {
  /** Issuer identifier of the provider. */
  readonly issuer: string;
  /** Current keysets. */
  readonly keysets: Keysets;
  /** Whether rotation mode is on. */
  readonly isRotating: boolean;
  /** Current maximum token lifetime, in seconds. */
  readonly maxTokenLifetimeSeconds: number;
  /**
   * Returns a function that checks whether this process may sign with a key, based on its last read of the store. The
   * function is called before signing and again before the signature is returned. It throws SignerError
   * `ERR_SIGNER_STALE`.
   */
  permit(kid: string): () => void;
  /** Reads the keys on demand; `undefined` if they change on their own. */
  readonly onDemand?: KeysOnDemand | undefined;
  /**
   * Returns the final state of a signing key. Returns `undefined` if no key had this kid or the key is still published.
   */
  endOf(kid: string): KeyEnd | undefined;
  /**
   * Passes the keysets to a subscriber now and after every change. Resolves after the first update. If a later update
   * fails or takes more than 10 s, it is retried, and the other subscribers do not wait for it.
   */
  subscribe(subscriber: KeySubscriber): Promise<void>;
}

/** Keys that are read only when they are needed. */
export interface KeysOnDemand {
  /**
   * Called before every use. Returns `undefined` if the keys can be used immediately. Rejects with SignerError
   * `ERR_SIGNER_STALE`.
   */
  fresh(): Promise<void> | undefined;
  /** Rereads the keys when a kid is unknown, at most once a second. */
  ask(): Promise<void>;
}
