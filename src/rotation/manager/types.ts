import type { CryptoKey, JWK } from "jose";
import type { Clock } from "../../base/clock.ts";
import type { JwksdError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import type { Optional } from "../../base/options.ts";
import type { ExternalSigner } from "../../keys/signer/signer.ts";
import type { KeysetSource } from "../../provider/managed-keys.ts";
import type { KeyChange } from "../rules/advance.ts";
import type { AuditEvent, KeyRecord, KeyUse, LiveRecord, Tombstone } from "../rules/key-records.ts";
import type { RotationPolicy, RotationPolicyOptions } from "../rules/policy.ts";
import type { Register } from "../store/register.ts";

/** A record without its private key, so that it can be logged. */
export type PublicRecord = Omit<LiveRecord, "privateHalf"> | Tombstone;

/** Size of a stored document and of its register. */
export interface Filling {
  /** Size of the document in bytes of UTF-8. */
  readonly bytes: number;
  /** Maximum size of a document that the register can hold. */
  readonly maxBytes: number;
}

/** An event in the life of a manager's keys. */
export type KeyManagerEvent =
  /** This manager or another process has committed changes to the keys. */
  | {
      readonly type: "changed";
      readonly by: "this" | "another";
      readonly records: readonly PublicRecord[];
      readonly events: readonly AuditEvent[];
    }
  /**
   * Keys could not be managed. The manager retries; until it is stale, it serves and signs with the keys that it has.
   */
  | {
      readonly type: "failed";
      readonly error: JwksdError;
      readonly retryInMs: number;
      /** Time at which this process becomes stale, in epoch milliseconds. */
      readonly staleAt: number;
    }
  /**
   * This process does not sign and is not ready (`ERR_SIGNER_STALE`): it has not checked in with its store for
   * `maxStaleSeconds`, or its clock and the store's clock differ by more than `clockSkewSeconds`.
   */
  | { readonly type: "stale"; readonly error: JwksdError }
  /** This process may sign again. */
  | { readonly type: "fresh" }
  /**
   * The `initialPolicy` option differs from the store's policy. The store's policy applies; to change it, run `jwksd
   * policy`.
   */
  | { readonly type: "policy-differs"; readonly given: RotationPolicyOptions; readonly stored: RotationPolicy }
  /** The stored document takes up 70% or more of the bytes that its register can hold. Reported once. */
  | ({ readonly type: "store-nearly-full" } & Filling)
  /**
   * The store has no keys even though other processes for this issuer are running (`ERR_STORE_EMPTY`): the store was
   * emptied, or this process uses a different store. The error names the processes. Unless `requireStore` is set, this
   * process still generates a first key.
   */
  | { readonly type: "store-emptied"; readonly error: JwksdError }
  /** The manager can manage the keys again, after a `failed` event. */
  | { readonly type: "recovered" }
  /**
   * An announced key cannot be opened or cannot sign, so it does not become active yet; the active key stays active.
   */
  | { readonly type: "activation-blocked"; readonly kid: string; readonly error: JwksdError }
  /** This process cannot open the active key. It does not sign, but still publishes the key. */
  | { readonly type: "key-unavailable"; readonly kid: string; readonly error: JwksdError }
  /**
   * A key was generated in an HSM or key service, but nothing uses it: another process got there first, or the key
   * could not be recorded. If `destroySigner` is given and it is certain that no record contains the key, the key was
   * destroyed.
   */
  | { readonly type: "orphaned"; readonly uri: string; readonly isDestroyed: boolean }
  /** A removed or revoked key was destroyed in its HSM or key service. */
  | { readonly type: "destroyed"; readonly kid: string; readonly uri: string }
  /** A removed or revoked key could not be destroyed in its HSM or key service. */
  | { readonly type: "destroy-failed"; readonly kid: string; readonly uri: string; readonly error: JwksdError };

/** Options for `createKeyManager`. */
export interface KeyManagerOptions {
  /** Issuer identifier of the provider. The store and its wrapped keys are bound to it. */
  readonly issuer: string;
  /** Register that holds the keys: a file, a database, or this process's memory. The manager does not close it. */
  readonly store: Register;
  /**
   * Rotation policy for an empty store. Once the store has keys, it holds the policy for all processes. To change that
   * policy, run `jwksd policy`. Default: the defaults of {@link RotationPolicyOptions}.
   */
  readonly initialPolicy?: Optional<RotationPolicyOptions>;
  /**
   * Wrapping keys, each consisting of 32 random bytes in base64url; in a single string, they are separated by
   * whitespace. In a new store, the first wrapping key is used to wrap the private keys and compute the MAC; all
   * wrapping keys can be used to unwrap private keys and verify the MAC. `jwksd keys rewrap` moves an existing store to
   * the first key.
   */
  readonly wrappingKeys: string | readonly string[];
  /**
   * Generates the next signing key in an HSM or key service. Default: jwksd generates the key itself and stores it
   * encrypted.
   */
  readonly createSigner?:
    | ((request: { readonly issuer: string; readonly signal: AbortSignal }) => Promise<ExternalSigner>)
    | null
    | undefined;
  /**
   * Opens a key in an HSM or key service. Required if the store has keys there, or if `createSigner` or `destroySigner`
   * is given. Default: none.
   */
  readonly openSigner?:
    | ((uri: string, options: { readonly signal: AbortSignal }) => Promise<ExternalSigner>)
    | null
    | undefined;
  /**
   * Destroys a key in an HSM or key service after this manager has removed or revoked it, or if this manager generated
   * the key but it turned out not to be needed. If the URI now identifies a different key, that key is not destroyed.
   * Default: none; keys stay where they are.
   */
  readonly destroySigner?:
    | ((uri: string, options: { readonly signal: AbortSignal }) => Promise<unknown>)
    | null
    | undefined;
  /**
   * Whether this process signs. A process that does not sign publishes the active key even if it cannot open that key
   * in its HSM or key service. Default: `true`.
   */
  readonly signs?: Optional<boolean>;
  /**
   * Whether to refuse a store without keys (`ERR_STORE_EMPTY`). Set this after the first start: if the path is mistyped
   * or the volume is lost, the process then refuses to start instead of generating new keys, which would make every
   * unexpired token fail. If neither this option nor `onEvent` is given, the process warns when it generates a first
   * key. Default: the value of `onDemand`.
   */
  readonly requireStore?: Optional<boolean>;
  /**
   * Whether to read the store only when keys are needed or `runDueSteps` is called. Set this for Workers, serverless
   * functions, and other platforms where no process stays alive between requests. To generate a first key, also set
   * `requireStore: false`. Default: `false`.
   */
  readonly onDemand?: Optional<boolean>;
  /**
   * With `onDemand`, how old a read can get before it is repeated in the background, in seconds. At twice that age, a
   * request waits for the new read; while the keys are younger than `maxStaleSeconds`, it waits for at most a second.
   * After a failed read, requests do not read the store again for the number of seconds set here; if the store
   * responded but has no usable keys, the pause is only a second. Default: 30.
   */
  readonly refreshSeconds?: Optional<number>;
  /**
   * With `onDemand`, keeps the platform from aborting a read when the request that started the read ends. On
   * Cloudflare, set this to `waitUntil` from `cloudflare:workers`. Default: none.
   */
  readonly waitUntil?: Optional<(promise: Promise<unknown>) => unknown>;
  /** Human-readable name of this replica, 1 to 255 printable characters. Default: `jwksd`. */
  readonly replicaName?: Optional<string>;
  /** Receives an event for each key change and failure. Default: none. */
  readonly onEvent?: Optional<(event: KeyManagerEvent) => void>;
  /** Clock and timers. Default: the machine's. */
  readonly clock?: Optional<Clock>;
}

/** Options for `rotate`. */
export interface RotateOptions {
  /** Use of the key: it signs (`sig`), or relying parties encrypt to it (`enc`). Default: `sig`. */
  readonly use?: Optional<KeyUse>;
  /**
   * Algorithm of the key. Default: the algorithm of the active key with this use; if there is none, `ES256` or
   * `RSA-OAEP-256`.
   */
  readonly alg?: Optional<string>;
  /**
   * Whether the key starts signing immediately, even though caches do not have it yet. Its tokens fail in verifiers
   * that do not refetch the set. Default: `false`.
   */
  readonly now?: Optional<boolean>;
}

/** Options for steps that may be too early. */
export interface ForceOptions {
  /** Whether the step is taken even if it makes valid tokens fail. Default: `false`. */
  readonly force?: Optional<boolean>;
}

/** Options for `rollBack`. */
export interface RollBackOptions {
  /** Kid of the retiring signing key to roll back to. Default: the key that signed most recently. */
  readonly kid?: Optional<string>;
  /**
   * Whether an announced key is removed in the same step. If it is not, the rollback is refused while a key is
   * announced. Default: `false`.
   */
  readonly withdraw?: Optional<boolean>;
  /**
   * Whether the step is taken even if the key signed without being announced first, in which case caches do not have
   * it. Default: `false`.
   */
  readonly now?: Optional<boolean>;
}

/** Options for `decommission`. */
export interface DecommissionOptions {
  /**
   * Whether to revoke all keys, which makes their tokens fail. If `false`, each key stays published until its last
   * token has expired. Default: `false`.
   */
  readonly now?: Optional<boolean>;
}

/** Generates, rotates and removes a provider's keys. */
export interface KeyManager extends KeysetSource {
  /** The policy in the store. */
  readonly policy: RotationPolicy;
  /** All keys in use, and the tombstones of former keys. */
  readonly records: readonly KeyRecord[];
  /** Whether this process may sign and has, within the past `maxStaleSeconds`, read the keys that it publishes. */
  readonly isReady: boolean;
  /**
   * Generates the next key for a use and announces it.
   *
   * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
   * @throws RotationError `ERR_TRANSITION`; StoreError `ERR_STORE_UNAVAILABLE`, `ERR_COMMIT_UNKNOWN`,
   * `ERR_STORE_CONFLICT`; SignerError if the key is generated in an HSM or key service
   */
  rotate(options?: RotateOptions): Promise<KeyChange>;
  /**
   * Makes a retiring signing key active again. Every process and every cache still has it, so nothing breaks. The
   * active key retires. The reactivated key's rotation period is measured from its first activation, so the next key
   * may be announced immediately.
   *
   * @throws RotationError `ERR_KID_UNMANAGED`, `ERR_TRANSITION`, `ERR_TOO_EARLY`; SignerError if the key cannot sign
   */
  rollBack(options?: RollBackOptions): Promise<KeyChange>;
  /**
   * Makes an announced key active and retires the key that is currently active.
   *
   * @throws RotationError `ERR_KID_UNMANAGED`, `ERR_TRANSITION`, `ERR_TOO_EARLY`
   */
  activate(kid: string, options?: ForceOptions): Promise<KeyChange>;
  /**
   * Retires the active key; the announced key becomes active.
   *
   * @throws RotationError, for the same reasons as `activate`
   */
  retire(kid: string, options?: ForceOptions): Promise<KeyChange>;
  /**
   * Removes a retiring or announced key permanently.
   *
   * @throws RotationError, for the same reasons as `activate`
   */
  remove(kid: string, options?: ForceOptions): Promise<KeyChange>;
  /**
   * Immediately and permanently removes a key whose private key may have leaked. If it was active, the announced
   * key or a new one replaces it.
   *
   * @throws RotationError `ERR_KID_UNMANAGED`, `ERR_TRANSITION`
   */
  revoke(kid: string): Promise<KeyChange>;
  /**
   * Encrypts all private keys with the first wrapping key, and computes the store's MAC with it. Every process must
   * have that key; this is checked for listed replicas. If the previous wrapping key has leaked, call this before
   * `revoke`, because new keys are encrypted with the store's current wrapping key.
   *
   * @throws RotationError `ERR_TRANSITION` if a replica does not have the key; StoreError `ERR_WRAPPING_KEY_MISSING`,
   * `ERR_WRAPPED_KEY`
   */
  rewrap(): Promise<KeyChange>;
  /**
   * Decommissions the issuer: processes no longer sign for it (`ERR_SIGNER_DECOMMISSIONED`) or generate keys for it.
   * Its keys never sign again: they retire or, with `now`, are revoked. Once they are gone, the set has one key, which
   * signs nothing. `now` is also allowed after the issuer has been decommissioned. When the issuer's name can be used
   * again, `rotate` generates a first key for it; until then, `rotate` throws `ERR_ISSUER_DECOMMISSIONED`.
   *
   * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`; RotationError `ERR_TRANSITION`
   */
  decommission(options?: DecommissionOptions): Promise<KeyChange>;
  /** Returns the private key for decrypting a JWE with `jose.compactDecrypt`. Reads the store if the kid is new. */
  decryptionKey(header: { readonly kid?: string | undefined }): Promise<CryptoKey>;
  /**
   * Returns a decryption key as a private JWK, for libraries that accept nothing else. Keep it out of logs and
   * responses.
   */
  exportDecryptionKey(kid: string): Promise<JWK>;
  /**
   * Reads the store and takes the steps that are due. With `onDemand`, call it regularly, for example once an hour, so
   * that steps are taken on time even without requests.
   *
   * @throws StoreError, SignerError, for the same reasons as `createKeyManager`
   */
  runDueSteps(): Promise<void>;
  /** Current faults, and the results of the latest store calls. */
  readonly health: KeyManagerHealth;
  /** Returns metrics about the keys, their next steps and the store, for a scrape. See docs/metrics.md. */
  metrics(): readonly Metric[];
  /** Stops the timers and closes the signers. Does not close the store, which belongs to the caller. */
  close(): Promise<void>;
}

/** The code and message of an error. */
export interface KnownError {
  /** Time of the error, in epoch milliseconds. */
  readonly at: number;
  readonly code: string;
  readonly message: string;
}

/** The results of store calls. All times are in epoch milliseconds by this machine's clock. */
export interface StoreHealth {
  readonly lastAttemptAt?: number | undefined;
  readonly lastSuccessAt?: number | undefined;
  /** Last error from a call to which the store did not respond. */
  readonly lastError?: KnownError | undefined;
  /** Latest revision that was read, and the time at which this process first read it. */
  readonly revision?: number | undefined;
  readonly revisionSince?: number | undefined;
  /** Size of the stored document, if that is 70% or more of what its register can hold. */
  readonly filling?: Filling | undefined;
}

/** The faults of a key manager, and the results of its store calls. Plain JSON, without secrets. */
export interface KeyManagerHealth {
  /**
   * The last failure. Absent once the manager can manage the keys again. `at` is the time at which the current series
   * of failures began.
   */
  readonly failure?: KnownError | undefined;
  /** Reason why this process does not sign and is not ready, and the time at which this began. */
  readonly stale?: KnownError | undefined;
  /** Announced keys that cannot sign, by kid. */
  readonly activationBlocked: Readonly<Record<string, KnownError>>;
  /** Active keys that this process cannot open, by kid. */
  readonly unavailable: Readonly<Record<string, KnownError>>;
  /** Removed or revoked keys that could not be destroyed in their HSM or key service, by kid. */
  readonly destroyFailed: Readonly<Record<string, KnownError>>;
  readonly store: StoreHealth;
}
