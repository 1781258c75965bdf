/** Values come as text or null: statements cast all else. */
export type Row = Readonly<Record<string, string | null | undefined>>;

/** How statements reach the database: by the package `pg`, or `postgres`. */
export interface Driver {
  /** How messages call the database: without user and password. */
  readonly name: string;
  /**
   * Runs one statement; without values, any number of them.
   *
   * @throws NotSent where it was certainly not run; else what the package throws
   */
  run(text: string, values: readonly (string | null)[], signal: AbortSignal | undefined): Promise<readonly Row[]>;
  /** Resolves when it no longer hears notifications. They need not come: PgBouncer in transaction mode delivers none. */
  listen(channel: string, onNotification: (payload: string) => void, signal: AbortSignal): Promise<void>;
  end(): Promise<void>;
}

/** Resolves when the signal has aborted. */
export const ended = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
