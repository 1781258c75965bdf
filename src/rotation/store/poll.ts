/** The result of a read that failed. */
const failed = Symbol("failed");

/**
 * Calls back when the result of `read` changes, and when `read` begins or ceases to fail, until the signal aborts. Also calls back after the
 * first read, because what the caller has read may be older. Does not keep the process alive.
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
