import { serial } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";

const everyMs = 60_000;

/** Saves a value immediately, and then every minute for as long as the value is known to be the latest. */
export interface Saver<Value> {
  save(value: Value): void;
  /** Resolves when all pending writes have succeeded or failed. */
  written(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Creates a saver for the latest value.
 *
 * @param write writes the value, and the time at which it was last known to be the latest
 * @param isConfirmed reports whether the value is currently known to be the latest
 * @param onFailure receives only the first error in a run of consecutive errors
 */
export function createSaver<Value>(
  write: (value: Value, at: number) => Promise<void>,
  isConfirmed: () => boolean,
  onFailure: (error: unknown) => void,
  clock: Clock,
): Saver<Value> {
  const inTurn = serial();
  let latest: Value | undefined;
  let isFailing = false;
  let cancelTimer: (() => void) | undefined;

  async function writeNow(): Promise<void> {
    cancelTimer?.();
    cancelTimer = clock.setTimer(wake, everyMs);
    if (latest === undefined || !isConfirmed()) return;
    try {
      await write(latest, clock.now());
      isFailing = false;
    } catch (error) {
      if (!isFailing) onFailure(error);
      isFailing = true;
    }
  }
  const wake = (): void => void inTurn(writeNow);
  const written = (): Promise<void> => inTurn(async () => {});

  return {
    save(value) {
      latest = value;
      wake();
    },
    written,
    async stop() {
      // A write in flight sets a timer when it ends.
      await written();
      cancelTimer?.();
    },
  };
}
