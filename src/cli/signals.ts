/** A service that keeps running after its command has returned. */
interface Running {
  /** Reloads files. */
  reload(): Promise<unknown>;
  stop(signal?: NodeJS.Signals): Promise<unknown>;
}

/**
 * Handles signals, even during startup, because an unhandled signal would kill the process. A signal that arrives
 * during startup takes effect afterwards.
 *
 * @param onStop function that is called as soon as a signal asks the process to stop, so that startup can be cut short
 * @returns a function that removes the handlers
 */
export function handleSignals(starting: Promise<Running>, onStop?: () => void): () => void {
  const whenStarted = (action: (running: Running) => Promise<unknown>): void =>
    // The code that awaits `starting` reports a failed startup.
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
