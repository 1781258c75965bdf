import { serial } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";

const everyMs = 60_000;

/** Saves a value now, and again every minute for as long as it is known to be the latest. */
export interface Saver<Value> {
  save(value: Value): void;
  /** Resolves when everything that was to be saved has been written, or could not be. */
  written(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Makes a saver of the latest value.
 *
 * @param write writes the value, and the time at which it was known to be the latest
 * @param isConfirmed whether the value is known to be the latest now
 * @param onFailure receives the first error of several in a row
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
      // A write in flight sets a timer.
      await written();
      cancelTimer?.();
    },
  };
}
