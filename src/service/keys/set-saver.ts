import { serial } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import type { SavedSet } from "./saved-set.ts";
import type { Logger } from "../config/log.ts";
import type { JwkSet } from "../../publish/jwk-set.ts";

const everyMs = 60_000;

/**
 * Saves the newest set in a file, and notes every minute that it still is the newest. A file that cannot be written is logged, and stops
 * nothing.
 *
 * @param write writes the set to the file
 * @param isConfirmed whether the store says now that the set is the newest
 */
export function createSetSaver(
  file: string,
  write: (set: Omit<SavedSet, "policy">) => Promise<void>,
  isConfirmed: () => boolean,
  { log, clock = systemClock }: { readonly log: Pick<Logger, "warn">; readonly clock?: Clock | undefined },
) {
  const inTurn = serial();
  let newest: JwkSet | undefined;
  let isWarned = false;
  let cancelTimer: (() => void) | undefined;

  async function writeNow(): Promise<void> {
    cancelTimer?.();
    cancelTimer = clock.setTimer(wake, everyMs);
    if (newest === undefined || !isConfirmed()) return;
    try {
      await write({ set: newest, at: clock.now() });
      isWarned = false;
    } catch (error) {
      const { code, message } = error as { readonly code?: string; readonly message: string };
      if (!isWarned)
        log.warn(
          { file, code },
          `the set cannot be saved for a start without the store (--data, --max-saved-set-seconds): ${message}`,
        );
      isWarned = true;
    }
  }
  const wake = (): void => void inTurn(writeNow);
  const written = (): Promise<void> => inTurn(async () => {});

  return {
    save(set: JwkSet): void {
      newest = set;
      wake();
    },
    /** Resolves when what was to be saved has been written, or could not be. */
    written,
    async stop(): Promise<void> {
      // What is under way sets a timer.
      await written();
      cancelTimer?.();
    },
  };
}
