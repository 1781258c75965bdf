/** Options that every method of a register accepts. */
export interface CallOptions {
  /**
   * Signal that aborts the call. The method then rejects with the signal's reason. If the signal has already aborted,
   * the method does nothing else.
   */
  readonly signal?: AbortSignal | undefined;
}

export interface ReadOptions extends CallOptions {
  /**
   * Whether the response must be proven to come from the current primary. A primary that has been replaced might still
   * answer plain reads. Default: `false`.
   */
  readonly confirmed?: boolean | undefined;
}

export interface WriteOptions extends CallOptions {
  /**
   * Time at which the next step is due, in epoch milliseconds. Only registers that can list due issuers use it.
   * Default: never.
   */
  readonly due?: number | undefined;
}

/** An issuer in the database. Do not trust its name, because anyone who can write to the store can add an issuer. */
export interface ListedIssuer {
  readonly issuer: string;
  /** Key of the row. The next page starts after this key. The key need not be derived from the issuer. */
  readonly key: string;
}

/** An issuer whose next step is due. */
export interface DueIssuer extends ListedIssuer {
  /** Time at which the issuer's step became due, in epoch milliseconds. */
  readonly due: number;
}

/** Result of reading a register. */
export interface ReadResult {
  /** Version of the stored document, which changes with every write. Missing if nothing was ever written. */
  readonly version?: string | undefined;
  /** The stored document. Missing if the caller knows this version, or if nothing was ever written. */
  readonly text?: string | undefined;
  /**
   * Time by the register's clock at some point during the call, in epoch milliseconds. Missing if the register has no
   * clock. If so, all processes that use the register should be on one machine, because a machine with a wrong clock
   * would go unnoticed.
   */
  readonly now?: number | undefined;
}

/** Result of listing an issuer's presence records. */
export interface PresenceList {
  /** Records by process id. */
  readonly records: ReadonlyMap<string, string>;
  /** Number of records in the store, including unlisted ones. */
  readonly count: number;
}

/** The presence records of the running processes. They only inform operators; no decision depends on them. */
export interface PresenceStore {
  /** Writes a process's record, which is at most 4,096 characters long. Replaces the process's previous record. */
  put(id: string, record: string, options?: CallOptions): Promise<void>;
  /**
   * Lists at most `limit` records. The query itself must limit the result, because anyone who can write to the store
   * can write records. A record that is longer than 16,384 bytes is listed as an empty string, and a record whose id is
   * longer than 512 bytes is omitted.
   */
  list(limit: number, options?: CallOptions): Promise<PresenceList>;
  /** Removes these processes' records, if they exist. There are at most 500 ids. */
  drop(ids: readonly string[], options?: CallOptions): Promise<void>;
}

/**
 * Stores one document for one issuer, and shares it between processes. Any database that can replace a value
 * conditionally can serve as a register. Every method throws a StoreError if it is certain that nothing was written:
 * `ERR_STORE_UNAVAILABLE` (`retryable`) if the database cannot be reached or used, `ERR_STORE_READ_ONLY` if this
 * process can read but not write. After any other error, a write may have succeeded or may still succeed.
 *
 * `defineRegisterTests` from `jwksd/testing/adapters` tests a register.
 */
export interface Register {
  /** Location of the document, for messages. It must not contain a password. */
  readonly name: string;
  /**
   * Reads the stored document.
   *
   * @param known version that the caller already has; its document is left out of the result
   */
  read(known?: string, options?: ReadOptions): Promise<ReadResult>;
  /**
   * Replaces the document if its version is still `ifVersion` (`undefined` if nothing has been written yet). The new
   * version must be random, so that no version is ever reused. A counter would repeat after a backup is restored.
   *
   * @returns `true` if the document was written and survives a crash of the process and the machine; `false` if the
   * version is different. A driver that repeats a statement may return `false` for a write that succeeded
   */
  write(text: string, ifVersion: string | undefined, options?: WriteOptions): Promise<boolean>;
  /** Presence records. Missing if processes are short-lived, as in a Worker. */
  readonly presence?: PresenceStore | undefined;
  /**
   * Calls `onChange` within a second after a write by any process, until the signal aborts. One call may cover several
   * writes. A caller that starts watching before it reads the document misses nothing. Missing if the register cannot
   * watch for writes; jwksd then reads the document once a second.
   */
  watch?(onChange: () => void, options: { readonly signal: AbortSignal }): void;
  /**
   * Lists the issuers in the whole database whose next step is due, most overdue first. Missing if the store cannot
   * list them.
   *
   * @param after last issuer on the previous page; without this parameter, issuers that stay due would keep the others
   * from being listed
   */
  due?(limit: number, after?: DueIssuer, options?: CallOptions): Promise<readonly DueIssuer[]>;
  /**
   * Lists all issuers in the whole database, ordered by key. Missing if the store cannot list them.
   *
   * @param after last issuer of the previous page
   */
  list?(limit: number, after?: ListedIssuer, options?: CallOptions): Promise<readonly ListedIssuer[]>;
  /**
   * Returns the register of another issuer in the same database, using the same connections. Missing if `list` is
   * missing.
   */
  forIssuer?(issuer: string): Register;
  /** Maximum size of a document that the register can store, in bytes of UTF-8. Default: no limit. */
  readonly maxBytes?: number | undefined;
  /**
   * Closes the register. May be called more than once. Afterward, there are no further callbacks, and every other
   * method throws `ERR_STORE_UNAVAILABLE`.
   */
  close?(): Promise<void>;
}

/** A register that must be closed. */
export interface ClosableRegister extends Register {
  close(): Promise<void>;
}
