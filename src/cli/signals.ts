/** What a command line leaves running. */
interface Running {
  /** Reads files again. */
  reload(): Promise<unknown>;
  stop(signal?: NodeJS.Signals): Promise<unknown>;
}

/**
 * Handles signals from the beginning, because an unhandled one ends the process. An early signal waits for the start.
 *
 * @param onStop is called at once when the process is asked to end, to shorten the start
 * @returns what gives the signals up
 */
export function handleSignals(starting: Promise<Running>, onStop?: () => void): () => void {
  const whenStarted = (action: (running: Running) => Promise<unknown>): void =>
    // The caller of `starting` reports a failed start.
    void starting.then(action, () => {});
  let stopping = false;
  const reload = (): void => whenStarted((running) => running.reload());
  const stop = (signal: NodeJS.Signals): void => {
    // A second Ctrl-C ends the process at once.
    if (stopping && signal === "SIGINT") process.exit(130);
    if (stopping) return;
    stopping = true;
    onStop?.();
    whenStarted((running) => running.stop(signal));
  };
  process.on("SIGHUP", reload).on("SIGTERM", stop).on("SIGINT", stop);
  return () => process.off("SIGHUP", reload).off("SIGTERM", stop).off("SIGINT", stop);
}
