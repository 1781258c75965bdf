import type { Clock } from "../../src/base/clock.ts";

/** Returns a clock and a function that waits until a timer is set: until then, the code under test is still working. */
export function waitedFor(time: Clock): { clock: Clock; waiting: (isOver: () => boolean) => Promise<void> } {
  const timers = new Set<() => void>();
  return {
    clock: {
      now: () => time.now(),
      setTimer(callback, delayMs) {
        const fire = (): void => {
          timers.delete(fire);
          callback();
        };
        timers.add(fire);
        return time.setTimer(fire, delayMs);
      },
    },
    async waiting(isOver) {
      while (timers.size === 0 && !isOver()) await new Promise(setImmediate);
    },
  };
}
