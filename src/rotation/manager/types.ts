import type { CryptoKey } from "jose";
import type { Clock } from "../../base/clock.ts";
import type { JwksdError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import type { EncryptionEntry, Keyset } from "../../keys/keyset/keyset.ts";
import type { ExternalSigner } from "../../keys/signer/signer.ts";
import type { KeyEvent, KeyRecord, KeyStore, KeyUse } from "../store/store.ts";
import type { Change } from "../rules/advance.ts";
import type { ManagerHealth } from "./health.ts";
import type { Command, NewKey } from "../rules/commands.ts";
import type { RotationPolicy, RotationPolicyOptions } from "../rules/policy.ts";

/** What happened to the keys of a manager. */
export type ManagerEvent =
  /** The keys are others than before: by a commit of this manager, whose `events` these are, or of another one. */
  | {
      readonly type: "changed";
      readonly by: "this" | "another";
      readonly records: readonly KeyRecord[];
      readonly events: readonly KeyEvent[];
    }
  /** Something could not be done; the last good keys go on being served and signed with, and it is tried again. */
  | { readonly type: "failed"; readonly error: JwksdError; readonly retryInMs: number }
  /**
   * The store has no seal, since it is from before there were any: its records are believed, whoever has written them, until
   * `jwksd keys rewrap` seals them. Once, at the start.
   */
  | { readonly type: "unsealed" }
  /**
   * This process may not sign and is not ready (`ERR_SIGNER_FENCED`): it could not renew its lease in time, so the others no longer rely on
   * it, or its clock and that of the store differ by more than `clockSkewSeconds`.
   */
  | { readonly type: "fenced"; readonly error: JwksdError }
  /** It may sign again. */
  | { readonly type: "unfenced" }
  /** It works again. */
  | { readonly type: "recovered" }
  /** An announced key cannot be opened or cannot sign, so it does not become active yet; the active key stays. */
  | { readonly type: "held-back"; readonly kid: string; readonly error: JwksdError }
  /** The active key cannot be opened by this process, which does not sign, and is published all the same. */
  | { readonly type: "unopened"; readonly kid: string; readonly error: JwksdError }
  /**
   * A key was made in its HSM or key service, and another replica was quicker or it could not be recorded; nothing uses it. It was
   * destroyed again, where that may be done (`destroySigner`) and it is certain that it is not recorded.
   */
  | { readonly type: "orphaned"; readonly uri: string; readonly isDestroyed: boolean }
  /** A removed or revoked key was destroyed in its HSM or key service, or could not be (then `error` says why). */
  | { readonly type: "destroyed"; readonly kid: string; readonly uri: string; readonly error?: JwksdError };

/** Options of `createKeyManager`. */
export interface KeyManagerOptions {
  /** Issuer identifier of the provider; the store and its wrapped keys are bound to it. */
  readonly issuer: string;
  readonly store: KeyStore;
  readonly policy?: RotationPolicyOptions | undefined;
  /** Each 32 random bytes in base64url. The first one wraps private keys and seals the store, all of them unwrap and verify. */
  readonly wrappingKeys: readonly string[];
  /** Makes the next signing key in an HSM or key service. Default: in memory, wrapped. */
  readonly createSigner?:
    | ((request: { readonly issuer: string; readonly signal: AbortSignal }) => Promise<ExternalSigner>)
    | undefined;
  /** Opens keys that are in an HSM or key service. Needed where there are any, and with the other two. */
  readonly openSigner?:
    | ((uri: string, options: { readonly signal: AbortSignal }) => Promise<ExternalSigner>)
    | undefined;
  /**
   * Destroys external keys after this manager has removed or revoked them, or has made one too many. Default: they stay where they are.
   * A URI that has come to name another key is not destroyed.
   */
  readonly destroySigner?: ((uri: string, options: { readonly signal: AbortSignal }) => Promise<unknown>) | undefined;
  /**
   * Whether this process signs. If not, an active external key that cannot be opened is published all the same. Default: `true`.
   */
  readonly signs?: boolean | undefined;
  /** What people call this replica: 1 to 255 printable characters. Default: `jwksd`. */
  readonly replicaName?: string | undefined;
  readonly onEvent?: ((event: ManagerEvent) => void) | undefined;
  /** Default: the clock of the machine. */
  readonly clock?: Clock | undefined;
}

/** What a provider takes. A change of keys reaches it as one. */
export interface ManagedKeysets {
  readonly keyset: Keyset;
  readonly encryptionKeyset: readonly EncryptionEntry[];
}

/** What takes the keys of a manager; `Provider` is one. The mode is for those that have no predicate of their own. */
export interface KeySink {
  update(keysets: ManagedKeysets, mode: { readonly isRotating: boolean }): Promise<void>;
}

/** Drives the keys of a provider through their lives. */
export interface KeyManager {
  readonly policy: RotationPolicy;
  /** All keys, tombstones included, as they are in use. */
  readonly records: readonly KeyRecord[];
  /** Whether the other replicas rely on this one: it publishes the newest keys that it knows, and may sign. */
  readonly isReady: boolean;
  /** For `createProvider`: the keysets as they are now, and what follows from the policy and the records. */
  readonly options: ManagedKeysets & {
    readonly issuer: string;
    readonly jwksRotationActive: () => boolean;
    readonly maxTokenLifetimeSeconds: number;
    readonly checkMaySign: (kid: string) => void;
    readonly retiredKid: (kid: string) => "removed" | "revoked" | undefined;
  };
  /**
   * Gives a provider (or whatever else has its `update`) the keysets now and after every change; resolves after the first time. Where a
   * later one fails, or takes more than 10 s, it is tried again (`failed`, `ERR_UPDATE`), and the others do not go without.
   */
  attach(sink: KeySink): Promise<void>;
  /**
   * A new key for `execute`, which is in no store yet: made where this manager makes its keys, and wrapped as they are.
   *
   * @param alg default: that of the active key of this use, else `ES256` or `RSA-OAEP-256`
   */
  makeKey(use: KeyUse, alg?: string): Promise<NewKey>;
  /** Does what a command asks for. @throws StateError, StoreError see `applyCommand` and `KeyStore.commit` */
  execute(command: Command): Promise<Change>;
  /** The private key to which something was encrypted, for `jose.compactDecrypt`; asks the store for a kid that is new. */
  decryptionKey(header: { readonly kid?: string | undefined }): Promise<CryptoKey>;
  /** What is wrong, and what the store has answered. */
  readonly health: ManagerHealth;
  /** Its keys, their next steps, and what the store has answered; for each scrape. See docs/metrics.md. */
  metrics(): readonly Metric[];
  /** Ends timers and open signers; the store is its owner's to close. */
  close(): Promise<void>;
}
