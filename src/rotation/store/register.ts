/** What every method of a register takes. */
export interface StoreCall {
  /** Once it has aborted, the method rejects with its reason. If it has aborted before the call, nothing is done. */
  readonly signal?: AbortSignal | undefined;
}

export interface ReadOptions extends StoreCall {
  /**
   * The answer must prove that it is not that of a primary which another one has replaced: such a primary goes on answering plain reads.
   * Default: `false`.
   */
  readonly confirmed?: boolean | undefined;
}

export interface WriteOptions extends StoreCall {
  /** When the next step is due, in epoch milliseconds, for registers that can list issuers by it. Default: never. */
  readonly due?: number | undefined;
}

/** An issuer whose next step is due. Anybody who can write the store can write a name. */
export interface DueIssuer {
  readonly issuer: string;
  /** Since when, in epoch milliseconds. */
  readonly due: number;
  /** Of the row, for the next page. It need not be made of the name. */
  readonly key: string;
}

/** What a register holds. */
export interface Reading {
  /** Names this text: another one after every write. Missing where nothing was ever written. */
  readonly version?: string | undefined;
  /** Missing where the version is the one that the caller knows, or where nothing was ever written. */
  readonly text?: string | undefined;
  /**
   * The time by the clock of the register at some moment of the call, in epoch milliseconds. Missing where the register has no clock of its
   * own: then all processes that use it must be on one machine, or nothing notices a machine whose clock is wrong.
   */
  readonly now?: number | undefined;
}

/** What is listed of the presence records of an issuer. */
export interface PresenceList {
  /** By process id. */
  readonly records: ReadonlyMap<string, string>;
  /** Number of records in the store, including those that are not listed. */
  readonly count: number;
}

/** A record for each running process, for people: it decides nothing. */
export interface Presence {
  /** Writes the record of a process, at most 4,096 characters, in place of the former one. */
  put(id: string, record: string, options?: StoreCall): Promise<void>;
  /**
   * Lists at most `limit` records. Anyone who can write to the store can write records, so the query itself is bounded: a record of more than
   * 16,384 bytes is listed as an empty string, and a record whose id has more than 512 bytes is left out.
   */
  list(limit: number, options?: StoreCall): Promise<PresenceList>;
  /** Removes the records of these processes, at most 500 of them, if they exist. */
  drop(ids: readonly string[], options?: StoreCall): Promise<void>;
}

/**
 * Holds one text for one issuer, and shares it between processes: any database that can replace a value on condition. Every method throws
 * StoreError where it is certain that nothing was written: `ERR_STORE_UNAVAILABLE` (`retryable`) where the database cannot be reached or
 * used, `ERR_STORE_READ_ONLY` where this process may read and not write. After any other error, a write may have been written, or may still be.
 *
 * `checkRegister` of `jwksd/testing/adapters` tests a register.
 */
export interface Register {
  /** For messages: where the text is, without a password. */
  readonly name: string;
  /** @param known the version whose text the caller has: the answer leaves that text out */
  read(known?: string, options?: ReadOptions): Promise<Reading>;
  /**
   * Replaces the text if its version is still `ifVersion` (`undefined`: nothing was written yet), and gives it a new version that was never
   * used before: a random one, because a database that was put back from a backup would count the same numbers again.
   *
   * @returns whether it was written; it then survives a crash of process and machine. `false`: the version is another one. A driver that repeats a
   * statement may answer `false` to a write that was written
   */
  write(text: string, ifVersion: string | undefined, options?: WriteOptions): Promise<boolean>;
  /** Missing where no process lives on, such as in a Worker. */
  readonly presence?: Presence | undefined;
  /**
   * Calls back within a second after a write by any process, until the signal aborts; several writes may share one call. Who watches before
   * they read miss nothing. Missing where the register cannot tell: then jwksd reads once a second.
   */
  watch?(onChange: () => void, options: { readonly signal: AbortSignal }): void;
  /**
   * Lists the issuers of the whole database whose next step is due, the longest due first. Missing where a store cannot list them.
   *
   * @param after the last one of the list before: those that come after it. So issuers that stay due are no obstacle to others
   */
  due?(limit: number, after?: DueIssuer, options?: StoreCall): Promise<readonly DueIssuer[]>;
  /** The largest text that it can hold, in bytes of UTF-8. Default: no limit. */
  readonly maxBytes?: number | undefined;
  /** May be called again. Afterwards nobody is called back, and every other method throws `ERR_STORE_UNAVAILABLE`. */
  close?(): Promise<void>;
}

/** A register that has something to close. */
export interface OpenRegister extends Register {
  close(): Promise<void>;
}
