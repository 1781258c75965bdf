/** A service that keeps running after its command line. */
interface Running {
  /** Reloads files. */
  reload(): Promise<unknown>;
  stop(signal?: NodeJS.Signals): Promise<unknown>;
}

/**
 * Handles signals, even during startup, because an unhandled signal would end the process. An early signal takes effect
 * after startup.
 *
 * @param onStop called as soon as the process is told to stop, to shorten the startup
 * @returns a function that removes the handlers
 */
export function handleSignals(starting: Promise<Running>, onStop?: () => void): () => void {
  const whenStarted = (action: (running: Running) => Promise<unknown>): void =>
    // The caller of `starting` reports a failed startup.
    void starting.then(action, () => {});
  let stopping = false;
  const reload = (): void => whenStarted((running) => running.reload());
  const stop = (signal: NodeJS.Signals): void => {
    // A second Ctrl-C ends the process immediately.
    if (stopping && signal === "SIGINT") process.exit(130);
    if (stopping) return;
    stopping = true;
    onStop?.();
    whenStarted((running) => running.stop(signal));
  };
  process.on("SIGHUP", reload).on("SIGTERM", stop).on("SIGINT", stop);
  return () => process.off("SIGHUP", reload).off("SIGTERM", stop).off("SIGINT", stop);
}
