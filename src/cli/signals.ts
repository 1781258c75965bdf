/** What a command line leaves running. */
interface Running {
  /** Reads files again. */
  reload(): Promise<unknown>;
  stop(): Promise<unknown>;
}

/** Handles signals from the beginning, because an unhandled one ends the process. An early signal waits for the start. */
export function handleSignals(starting: Promise<Running>): void {
  const whenStarted = (action: (running: Running) => Promise<unknown>): void =>
    // Whoever starts it reports a failed start.
    void starting.then(action, () => {});
  let stopping = false;
  process.on("SIGHUP", () => whenStarted((running) => running.reload()));
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      // A second Ctrl-C ends the process at once.
      if (stopping && signal === "SIGINT") process.exit(130);
      if (!stopping) whenStarted((running) => running.stop());
      stopping = true;
    });
  }
}
