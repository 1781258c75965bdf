/** Result of a failed read. */
const failed = Symbol("failed");

/**
 * Calls `onChange` when the result of `read` changes, and when `read` starts or stops failing, until the signal aborts.
 * Also calls it after the first read, because the caller may have read something older. Does not keep the process
 * alive.
 *
 * @returns a function that reads immediately
 */
export function poll(
  read: () => Promise<unknown>,
  everyMs: number,
  onChange: () => void,
  signal: AbortSignal,
): () => void {
  let latest: unknown = Symbol("nothing yet");
  let isReading = false;
  let mustReadAgain = false;

  async function readNow(): Promise<void> {
    isReading = true;
    do {
      mustReadAgain = false;
      const found = await read().catch(() => failed);
      if (signal.aborted) return;
      if (found !== latest) onChange();
      latest = found;
    } while (mustReadAgain);
    isReading = false;
  }

  const poke = (): void => {
    if (isReading) mustReadAgain = true;
    else if (!signal.aborted) void readNow();
  };
  const timer = setInterval(poke, everyMs);
  timer.unref();
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  poke();
  return poke;
}
