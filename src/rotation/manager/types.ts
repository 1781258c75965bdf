import type { Optional } from "../../base/options.ts";
import type { CryptoKey, JWK } from "jose";
import type { Clock } from "../../base/clock.ts";
import type { JwksdError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import type { ExternalSigner } from "../../keys/signer/signer.ts";
import type { ManagedKeys } from "../../provider/managed-keys.ts";
import type { KeyEvent, KeyRecord, KeyUse, LiveRecord, Tombstone } from "../rules/records.ts";
import type { Register } from "../store/register.ts";
import type { Change } from "../rules/advance.ts";
import type { ManagerHealth } from "./health.ts";
import type { RotationPolicy, RotationPolicyOptions } from "../rules/policy.ts";

/** A record without its private half, so that a log may hold it. */
export type PublicRecord = Omit<LiveRecord, "privateHalf"> | Tombstone;

/** How much of a register is used. */
export interface Filling {
  /** Of the text that the store holds now, in UTF-8. */
  readonly bytes: number;
  /** The most that the register can hold. */
  readonly maxBytes: number;
}

/** What happened to the keys of a manager. */
export type ManagerEvent =
  /** The keys have changed, by a commit of this manager or of another one. */
  | {
      readonly type: "changed";
      readonly by: "this" | "another";
      readonly records: readonly PublicRecord[];
      readonly events: readonly KeyEvent[];
    }
  /** Keys could not be managed. The last good keys go on being served and signed with until they are stale, and the manager tries again. */
  | {
      readonly type: "failed";
      readonly error: JwksdError;
      readonly retryInMs: number;
      /** When this process becomes stale, in epoch milliseconds. */
      readonly staleAt: number;
    }
  /**
   * This process does not sign and is not ready (`ERR_SIGNER_STALE`): it has had no word with its store for `maxStaleSeconds`, or its clock
   * and that of the store differ by more than `clockSkewSeconds`.
   */
  | { readonly type: "stale"; readonly error: JwksdError }
  /** This process may sign again. */
  | { readonly type: "fresh" }
  /** The policy of the options is another one than that of the store, which holds. `jwksd policy` changes that one. */
  | { readonly type: "policy-differs"; readonly given: RotationPolicyOptions; readonly stored: RotationPolicy }
  /** The text of the store takes 70 % or more of the bytes that its register can hold. Told once. */
  | ({ readonly type: "store-nearly-full" } & Filling)
  /**
   * Processes of this issuer are running, and the store has no keys (`ERR_STORE_EMPTY`): it was emptied, or this process uses another store. The
   * error names them. Unless `requireStore` is set, this process makes the first key all the same.
   */
  | { readonly type: "store-emptied"; readonly error: JwksdError }
  /** Keys are managed again, after `failed`. */
  | { readonly type: "recovered" }
  /** An announced key cannot be opened or cannot sign, so it does not become active yet; the active key stays. */
  | { readonly type: "activation-blocked"; readonly kid: string; readonly error: JwksdError }
  /** The active key cannot be opened by this process, which does not sign, and is published all the same. */
  | { readonly type: "key-unavailable"; readonly kid: string; readonly error: JwksdError }
  /**
   * A key was made in its HSM or key service, but nothing uses it: another process was quicker, or the key could not be recorded. The key
   * was destroyed again if `destroySigner` is given and it is certain that no record names the key.
   */
  | { readonly type: "orphaned"; readonly uri: string; readonly isDestroyed: boolean }
  /** A removed or revoked key was destroyed in its HSM or key service. */
  | { readonly type: "destroyed"; readonly kid: string; readonly uri: string }
  /** A removed or revoked key could not be destroyed in its HSM or key service. */
  | { readonly type: "destroy-failed"; readonly kid: string; readonly uri: string; readonly error: JwksdError };

/** Options of `createKeyManager`. */
export interface KeyManagerOptions {
  /** Issuer identifier of the provider; the store and its wrapped keys are bound to it. */
  readonly issuer: string;
  /** Holds the keys: a file, a database, or the memory of this process. Its owner closes it. */
  readonly store: Register;
  /**
   * How keys rotate, if the store is empty. Afterwards the store holds the policy, for all processes; `jwksd policy` changes it. Default: that of
   * {@link RotationPolicyOptions}.
   */
  readonly policy?: Optional<RotationPolicyOptions>;
  /**
   * Each has 32 random bytes in base64url; in a string, white space is between them. The first one wraps the private keys of a new store, and
   * makes its MAC; all of them unwrap and verify. `jwksd keys rewrap` moves a store to the first one.
   */
  readonly wrappingKeys: string | readonly string[];
  /** Makes the next signing key in an HSM or key service. Default: jwksd makes the key itself, and stores it encrypted. */
  readonly createSigner?:
    | ((request: { readonly issuer: string; readonly signal: AbortSignal }) => Promise<ExternalSigner>)
    | null
    | undefined;
  /** Opens keys that are in an HSM or key service. Required if the store has such keys, and with `createSigner` or `destroySigner`. Default: none. */
  readonly openSigner?:
    | ((uri: string, options: { readonly signal: AbortSignal }) => Promise<ExternalSigner>)
    | null
    | undefined;
  /**
   * Destroys a key in an HSM or key service after this manager has removed or revoked it, or has made it without need. If the URI names
   * another key by now, that key is not destroyed. Default: such keys stay where they are.
   */
  readonly destroySigner?:
    | ((uri: string, options: { readonly signal: AbortSignal }) => Promise<unknown>)
    | null
    | undefined;
  /**
   * Whether this process signs. If not, it publishes the active key even if it cannot open that key in its HSM or key service. Default: `true`.
   */
  readonly signs?: Optional<boolean>;
  /**
   * Refuses a store that holds no keys (`ERR_STORE_EMPTY`). Set it after the first start: a start on a mistyped path or a lost volume then
   * fails. Otherwise it would make new keys, and every token that has not expired would fail. Default: that of `onDemand`. If neither this
   * option nor `onEvent` is given, the process warns when it makes a first key.
   */
  readonly requireStore?: Optional<boolean>;
  /**
   * Reads the store only when keys are asked for, or with `runDueSteps`: for Workers, functions, and all else where no process lives between two
   * requests. Needs `requireStore: false` for a first key. Default: `false`.
   */
  readonly onDemand?: Optional<boolean>;
  /**
   * How old a read may be, in seconds, before `onDemand` makes another one, beside the answer. A request waits for a read that is due for as long
   * again: for a second at most, while the keys are younger than `maxStaleSeconds`. After a failure nothing is read for this time. Default: 30.
   */
  readonly refreshSeconds?: Optional<number>;
  /** With `onDemand`, keeps the platform from ending a read with the request that began it: `waitUntil` of `cloudflare:workers`. Default: none. */
  readonly waitUntil?: Optional<(promise: Promise<unknown>) => unknown>;
  /** What people call this replica: 1 to 255 printable characters. Default: `jwksd`. */
  readonly replicaName?: Optional<string>;
  /** Gets changes of keys, and failures. Default: nobody listens. */
  readonly onEvent?: Optional<(event: ManagerEvent) => void>;
  /** Tells the time. Default: the clock of the machine. */
  readonly clock?: Optional<Clock>;
}

/** Options of `rotate`. */
export interface RotateOptions {
  /** Whether the key signs (`sig`), or relying parties encrypt to it (`enc`). Default: `sig`. */
  readonly use?: Optional<KeyUse>;
  /** The algorithm of the key. Default: that of the active key of this use, else `ES256` or `RSA-OAEP-256`. */
  readonly alg?: Optional<string>;
  /** Whether the key signs at once, although caches do not know it. Tokens fail at verifiers that do not refetch the set. Default: `false`. */
  readonly now?: Optional<boolean>;
}

/** Options of steps that may be too early. */
export interface ForceOptions {
  /** Takes the step although it breaks verifications. Default: `false`. */
  readonly force?: Optional<boolean>;
}

/** Makes, rotates and removes the keys of a provider. */
export interface KeyManager extends ManagedKeys {
  /** That of the store. */
  readonly policy: RotationPolicy;
  /** All keys, as they are in use, and the tombstones of former keys. */
  readonly records: readonly KeyRecord[];
  /** Whether this process publishes what it has read less than `maxStaleSeconds` ago, and may sign. */
  readonly isReady: boolean;
  /**
   * Makes the next key of a use, and announces it.
   *
   * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
   * @throws StateError `ERR_TRANSITION`; StoreError `ERR_STORE_UNAVAILABLE`, `ERR_COMMIT_UNKNOWN`, `ERR_STORE_CONFLICT`; SignerError where the key is made in an HSM or key service
   */
  rotate(options?: RotateOptions): Promise<Change>;
  /** Makes an announced key active, and the active one retiring. @throws StateError `ERR_KID_UNMANAGED`, `ERR_TRANSITION`, `ERR_TOO_EARLY` */
  activate(kid: string, options?: ForceOptions): Promise<Change>;
  /** Makes the active key retiring, and the announced one active. @throws StateError see `activate` */
  retire(kid: string, options?: ForceOptions): Promise<Change>;
  /** Removes a retiring or announced key for good. @throws StateError see `activate` */
  remove(kid: string, options?: ForceOptions): Promise<Change>;
  /**
   * Removes a key at once and for good, because others may know its private half. The announced key takes the place of an active one, else
   * a new one that is made now.
   *
   * @throws StateError `ERR_KID_UNMANAGED`, `ERR_TRANSITION`
   */
  revoke(kid: string): Promise<Change>;
  /** The private key to which something was encrypted, for `jose.compactDecrypt`; asks the store for a kid that is new. */
  decryptionKey(header: { readonly kid?: string | undefined }): Promise<CryptoKey>;
  /** The same key as a private JWK, for a library that takes nothing else. Keep it out of logs and replies. */
  exportDecryptionKey(kid: string): Promise<JWK>;
  /**
   * Reads the store, and does what is due. With `onDemand`, call it once an hour, for example, so that steps are in time without visitors.
   *
   * @throws StoreError, SignerError see `createKeyManager`
   */
  runDueSteps(): Promise<void>;
  /** What is wrong, and what the store has answered. */
  readonly health: ManagerHealth;
  /** Metrics of the keys, their next steps and the store, made for each scrape. See docs/metrics.md. */
  metrics(): readonly Metric[];
  /** Ends timers and open signers. Does not close the store, which belongs to the caller. */
  close(): Promise<void>;
}
