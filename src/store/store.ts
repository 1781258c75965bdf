import type { PublicJwk } from "../jwk/public.ts";

export type KeyUse = "sig" | "enc";

/**
 * - `announced`: published, not in use yet
 * - `active`: signs; of an encryption key: published first
 * - `retiring`: published for verification only; of an encryption key: no longer published, kept for decryption
 * - `removed`: gone; its kid is never used again
 * - `revoked`: removed at once, in an emergency
 */
export type KeyState = "announced" | "active" | "retiring" | "removed" | "revoked";

/** Where the private half of a key is. */
export type PrivateHalf =
  /** Wrapped: a JWE in compact serialization that holds the private JWK. */
  | { readonly jwe: string }
  /** In an HSM or a key service: the URI of an immutable key version. */
  | { readonly uri: string };

/**
 * One managed key, from its announcement on and for good: a removed or revoked key stays as a tombstone, so that its kid is never
 * used again. Plain JSON.
 */
export interface KeyRecord {
  readonly kid: string;
  readonly use: KeyUse;
  /** `ES256`, or the key management algorithm of an encryption key. */
  readonly alg: string;
  readonly state: KeyState;
  /** Epoch milliseconds at which each state began; only of states that it has been in. */
  readonly announcedAt: number;
  readonly activatedAt?: number;
  readonly retiredAt?: number;
  /** Removed or revoked. */
  readonly endedAt?: number;
  /** It signed before its announcement was over: an operator forced it, or it was the first key or one that was published elsewhere. */
  readonly unannounced?: true;
  /**
   * The longest lifetime of the tokens that it may sign or have signed: the largest `maxTokenLifetimeSeconds` of all processes that had
   * it since it was announced.
   */
  readonly maxTokenLifetimeSeconds?: number;
  readonly publicJwk: PublicJwk;
  /** Not of tombstones, but for the URI of a key that may still be in its HSM or key service. */
  readonly privateHalf?: PrivateHalf;
  /** A replica has undertaken to make the next key; the others leave it to it until then. Of active keys. */
  readonly successorClaim?: { readonly by: string; readonly until: number };
}

/** One entry of the audit log. Plain JSON; never holds key material. */
export interface KeyEvent {
  /** Epoch milliseconds. */
  readonly at: number;
  readonly type:
    | "announced"
    | "activated"
    | "retired"
    | "removed"
    | "revoked"
    | "imported"
    | "rewrapped"
    | "sealed"
    | "restarted";
  readonly kid: string;
  readonly use: KeyUse;
  /** Why, in words: the rule or the command behind it. */
  readonly reason: string;
}

/** An event and its place in the log, counted from 1. */
export interface StoredEvent extends KeyEvent {
  readonly number: number;
}

/** All records, in the order in which they were added, and the number of the commit that wrote them; 0 for an empty store. */
export interface Snapshot {
  readonly revision: number;
  readonly records: readonly KeyRecord[];
  /** What the commit was given, as it is: it authenticates revision and records. */
  readonly seal?: string | undefined;
}

/**
 * Keeps the records and the audit log, and shares them between processes. Every method throws StoreError `ERR_STORE_UNAVAILABLE`
 * (`retryable`) where the store cannot be reached or written; then nothing has changed.
 */
export interface KeyStore {
  load(options?: { readonly signal?: AbortSignal | undefined }): Promise<Snapshot>;
  /**
   * Writes records and appends events, both or neither, if `expectedRevision` is still the newest. When it resolves, the commit
   * survives a crash of process and machine.
   *
   * @param options.seal kept in the place of the one before; without it, none is kept
   * @returns the new revision, which is `expectedRevision + 1`
   * @throws StoreError `ERR_STORE_CONFLICT` (`retryable`): another commit came first
   * @throws StoreError `ERR_RECORDS_INVALID`: a record of the store is missing in `records`; none is ever forgotten
   */
  commit(
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    options?: { readonly signal?: AbortSignal | undefined; readonly seal?: string | undefined },
  ): Promise<number>;
  /** The newest events, newest first; `limit` of them (default: all), from before event number `before` (default: the end). */
  events(options?: {
    readonly limit?: number | undefined;
    readonly before?: number | undefined;
    readonly signal?: AbortSignal | undefined;
  }): Promise<readonly StoredEvent[]>;
  /**
   * Calls back within a second after a commit, by any process, until the signal aborts; several commits may share one call. Also when the
   * store was replaced or became unusable: loading tells. Who watches before it loads misses nothing.
   */
  watch(onChange: () => void, options: { readonly signal: AbortSignal }): void;
  close(): Promise<void>;
}
