/** A row. All values are text or null, because the statements cast other types to text. */
export type Row = Readonly<Record<string, string | null | undefined>>;

/** A connection to the database, through the `pg` or `postgres` package. */
export interface Driver {
  /** Name of the database for messages, without the user or password. */
  readonly name: string;
  /**
   * Runs one statement, or several in one string if there are no values.
   *
   * @throws NotSent if it is certain that the statement was not run; otherwise, the package's error
   */
  run(text: string, values: readonly (string | null)[], signal: AbortSignal | undefined): Promise<readonly Row[]>;
  /**
   * Listens for notifications. Resolves when it stops listening. PgBouncer in transaction mode does not deliver
   * notifications.
   */
  listen(channel: string, onNotification: (payload: string) => void, signal: AbortSignal): Promise<void>;
  end(): Promise<void>;
}

/** Resolves when the signal has aborted. */
export const ended = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
