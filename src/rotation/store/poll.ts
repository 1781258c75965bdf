/** What was seen of a store that cannot be asked. */
const lost = Symbol("lost");

/**
 * Calls back when what `runDueSteps` finds has changed, and when it begins or ceases to fail, until the signal aborts. Also calls back once at the
 * beginning, because what its caller has read may be older than what the first look finds. Keeps no process alive.
 *
 * @returns looks at once
 */
export function poll(
  look: () => Promise<unknown>,
  everyMs: number,
  onChange: () => void,
  signal: AbortSignal,
): () => void {
  let seen: unknown = Symbol("nothing yet");
  let isLooking = false;
  let isAskedAgain = false;

  async function lookNow(): Promise<void> {
    isLooking = true;
    do {
      isAskedAgain = false;
      const found = await look().catch(() => lost);
      if (signal.aborted) return;
      if (found !== seen) onChange();
      seen = found;
    } while (isAskedAgain);
    isLooking = false;
  }

  const poke = (): void => {
    if (isLooking) isAskedAgain = true;
    else if (!signal.aborted) void lookNow();
  };
  const timer = setInterval(poke, everyMs);
  timer.unref();
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  poke();
  return poke;
}
