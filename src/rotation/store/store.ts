import type { PublicJwk } from "../../keys/jwk/public.ts";

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
  /** Since when every replica publishes it, in epoch milliseconds. Its announcement counts from then. */
  readonly publishedAt?: number;
  readonly activatedAt?: number;
  readonly retiredAt?: number;
  /** Since when no replica signs with it, or publishes it for encryption. Its retirement counts from then. */
  readonly unusedAt?: number;
  /** Removed or revoked. */
  readonly endedAt?: number;
  /** The key signed before its announcement was over: by force, as the first key, or because it had been published elsewhere. */
  readonly unannounced?: true;
  /** How long it has to be published before it signs: the longest that any replica asked for. */
  readonly announceForSeconds?: number;
  /** How long the key stays published after its last use: the longest time that any process with this key asked for. */
  readonly retireForSeconds?: number;
  readonly publicJwk: PublicJwk;
  /** Not of tombstones, but for the URI of a key that may still be in its HSM or key service. */
  readonly privateHalf?: PrivateHalf;
  /** A replica has undertaken to make the next key; the others leave it to it until then. Of active keys. */
  readonly successorLease?: { readonly by: string; readonly until: number };
}

/** One entry of the audit log. Plain JSON; never holds key material. */
export interface KeyEvent {
  /** Epoch milliseconds. */
  readonly at: number;
  readonly type: "announced" | "activated" | "retired" | "removed" | "revoked" | "imported" | "rewrapped" | "restarted";
  readonly kid: string;
  readonly use: KeyUse;
  /** Why, in words: the rule or the command behind it. */
  readonly reason: string;
}

/** An event and its place in the log, counted from 1. */
export interface StoredEvent extends KeyEvent {
  readonly number: number;
}

/**
 * What a replica has reported to the store; a replica is a process that publishes or signs. The others rely on a lease until its replica gives it
 * up, or until one of them has seen no renewal for its length on a monotonic clock, and has ended it. Plain JSON.
 */
export interface Lease {
  /** 1 to 64 characters of `A-Z a-z 0-9 . _ : -`. New for each lease: one that has ended is never renewed. */
  readonly id: string;
  /** How people call the replica: 1 to 255 characters, none of them a control character or invisible. */
  readonly name: string;
  /** The newest revision that it publishes everywhere; 0 before its first. */
  readonly publishes: number;
  /** The kids that it may sign with: none, one, or two while it switches; never more than 16, each of 1 to 4,096 characters. */
  readonly signsWith: readonly string[];
  /** What the replica was started with, as far as others ask for it: at most 16,384 characters as JSON, kept as they are. */
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  /** The number of its last renewal; 0 before the first. */
  readonly serial: number;
  /** How long it lasts from each renewal, in whole milliseconds: rounded up, because others may rely on it longer, never shorter. */
  readonly forMs: number;
  /** When that is over, in epoch milliseconds by the clock of the store. For people: that clock may be set, and ends no lease. */
  readonly until: number;
}

/** What a replica says when it joins. */
export type NewLease = Pick<Lease, "id" | "name" | "settings">;

/** What a decision relies on. */
export type LeaseSeen = Pick<Lease, "id" | "publishes" | "signsWith">;

/** What the newest commit has left. */
export interface Committed {
  /** The number of that commit; 0 for an empty store. */
  readonly revision: number;
  /** All of them, in the order in which they were added. */
  readonly records: readonly KeyRecord[];
  /** The MAC of the commit, unchanged. It authenticates revision and records. */
  readonly mac?: string | undefined;
}

/** What a store holds at one moment. It stays as it is, whatever is committed later. */
export interface Snapshot extends Committed {
  /** When it was read, in epoch milliseconds by the clock of the store; of a store without one, by that of the machine. */
  readonly now: number;
  /** The leases that nobody has ended, in the order of `join`. No MAC covers leases. */
  readonly leases: readonly Lease[];
  /** The ids of ended leases. A store may forget such an id a day after the lease would have run out. */
  readonly ended: readonly string[];
}

/** What every method of a store takes. */
export interface StoreCall {
  /** Once it has aborted, the method rejects with its reason. If it has aborted before the call, nothing is done. */
  readonly signal?: AbortSignal | undefined;
}

export interface RenewOptions extends StoreCall {
  readonly ifRevision?: number | undefined;
  readonly serial?: number | undefined;
}

export interface CommitOptions extends StoreCall {
  /** Kept in the place of the one before; without it, none is kept. */
  readonly mac?: string | undefined;
  /**
   * The leases that the decision relied on. The commit is a conflict unless they are still exactly those that nobody has ended, with the
   * same `publishes` and `signsWith`.
   */
  readonly leases?: readonly LeaseSeen[] | undefined;
}

/**
 * Keeps the records, the leases and the audit log, and shares them between processes. Every method throws StoreError
 * `ERR_STORE_UNAVAILABLE` (`retryable`) where the store cannot be reached or written; then nothing has changed, but for a lease of which the answer was lost.
 */
export interface KeyStore {
  /** @throws StoreError `ERR_RECORDS_INVALID`: a record or a live lease is damaged */
  load(options?: StoreCall): Promise<Snapshot>;
  /**
   * Writes records and appends events, both or neither, if `expectedRevision` is still the newest. When it resolves, the commit
   * survives a crash of process and machine.
   *
   * @returns the new revision, which is `expectedRevision + 1`
   * @throws StoreError `ERR_STORE_CONFLICT` (`retryable`): another commit came first, or leases have changed
   * @throws StoreError `ERR_COMMIT_UNKNOWN` (`retryable`): the commit may be written, now or later; loading tells
   * @throws StoreError `ERR_RECORDS_INVALID`: a record of the store is missing in `records`; none is ever forgotten
   */
  commit(
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    options?: CommitOptions,
  ): Promise<number>;
  /**
   * Makes a lease of a replica that publishes nothing yet. It lasts `forMs` milliseconds from now.
   *
   * @throws StoreError `ERR_STORE_CONFLICT`: there is a lease with this id, or there was one that has ended
   * @throws ConfigError `ERR_OPTION_INVALID`: a member breaks its rule, or `forMs` is less than 1
   */
  join(lease: NewLease, forMs: number, options?: StoreCall): Promise<void>;
  /**
   * Says what the replica does now, and lets its lease last `forMs` milliseconds from now.
   *
   * @param options.ifRevision changes nothing unless this is the revision of the store
   * @param options.serial the number of this renewal. One that was given up may still arrive: where a higher number came before, nothing is
   * changed, and the lease counts as ended. Default: the next number
   * @returns the revision of the store
   * @throws StoreError `ERR_LEASE_ENDED`: the lease has ended; join with a new id
   * @throws ConfigError `ERR_OPTION_INVALID`: as for `join`
   * @throws StoreError `ERR_STORE_CONFLICT` (`retryable`): the store is at another revision than `ifRevision`
   */
  renew(lease: LeaseSeen, forMs: number, options?: RenewOptions): Promise<number>;
  /**
   * Ends a lease for good. There need not be one with this id.
   *
   * @param options.ifSerial changes nothing unless this is the number of its last renewal
   */
  leave(id: string, options?: StoreCall & { readonly ifSerial?: number | undefined }): Promise<void>;
  /** The newest events, newest first; `limit` of them (default: all), from before event number `before` (default: the end). */
  events(
    options?: StoreCall & { readonly limit?: number | undefined; readonly before?: number | undefined },
  ): Promise<readonly StoredEvent[]>;
  /**
   * Calls back within a second after a commit, by any process, until the signal aborts; several commits may share one call. Also when the
   * store was replaced or became unusable: loading tells. Who watches before it loads misses nothing. Changes of leases need not, but
   * may call back.
   */
  watch(onChange: () => void, options: { readonly signal: AbortSignal }): void;
  /** May be called again. Afterwards nobody is called back, and every other method throws `ERR_STORE_UNAVAILABLE`. */
  close(): Promise<void>;
}
